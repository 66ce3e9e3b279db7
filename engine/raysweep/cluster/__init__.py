"""The Ray shell: placement groups, warm workers, the link to them, and the controller."""
