"""Parts of the controller: heartbeat, timer, background work, back-pressure, how it ends. Private."""
