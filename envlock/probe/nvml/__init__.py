"""What the driver says through its own library: the first source for GPUs.

`child` asks in a process of its own, which may hang; `collecting` is what that process
does. `questions` are the single calls, `layout` what lies in a GPU and between GPUs,
`words` how answers are spelt, `binding` the module `pynvml`, `library` the file it loads.

Travels to nodes: standard library only, Python 3.8 and newer.
"""
