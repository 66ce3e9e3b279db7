"""The code that a job takes to its cluster: packages of folders, and what is left out of them."""
