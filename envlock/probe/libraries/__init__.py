"""The CUDA libraries that a process really loads: which file, which version, whose, and what is wrong with it.

Versions on disk, of a package or in an image's variables say what a process might load;
`/proc/PID/maps` says what it did.

Travels to nodes: standard library only, Python 3.8 and newer.
"""
