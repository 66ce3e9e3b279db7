"""The MCP server: the command line as tools for agents, over standard input and output (`raysweep mcp`).

| file | does |
|---|---|
| `server` | declares the tools and resources |
| `commands` | runs one command of raysweep in a process of its own |
| `bounded` | cleans a document of control characters, and cuts what is long |
| `started` | starts a sweep that outlives the server |

A tool is a command with `--json`: its document, its errors and its exit code are those of the command line.
Each runs in a process of its own: a plan imports the user's code as it is now, and nothing that the code
prints reaches the protocol. A server knows one storage path.

Private: needs `raysweep[mcp]`.
"""
