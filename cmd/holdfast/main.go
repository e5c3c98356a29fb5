// Command holdfast runs a node of a lock cluster and is its command-line client.
package main

import (
	"os"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/command"
)

func main() {
	// Returning from here ends the process at once, whatever still runs.
	os.Exit(command.Main())
}
