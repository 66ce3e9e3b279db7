"""everyday: figures of daily use, each at two sizes of what grows, beside another tree of this repository."""
