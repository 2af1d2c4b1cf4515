"""What `make gpu-check` does on a machine with a real GPU: read, compare, compute, and leave a folder.

It reads and changes no setting. Nothing is needed but Python 3.8 with torch, and of the
driver what is there. Standard library only.
"""
