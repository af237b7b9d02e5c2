package handler

import (
	"fmt"
	"io"
	"os"
)

// An appCommand is what an app's program does instead of serving, if its first
// argument asks for it.
type appCommand struct {
	name string // the first argument
	args string // what may follow, for the usage
	does string
	run  func(app App, args []string, out io.Writer) error
}

// appCommands are all there are, in the order of the usage.
var appCommands = []appCommand{
	{"-write-functions", "[-per-route] [FOLDER]", "write the function.json of each trigger below FOLDER, that of host.json", writeFunctionsCommand},
	{"hub", "VERB …", "work on the task hub; hub --help lists the verbs", nil},
	{"-schema", "", "write the JSON schema of what host.json may have for an app, for editors", schemaCommand},
	{"-init", "[FOLDER]", "write a new app into FOLDER, which must be empty", initCommand},
}

// runCommand does what the program's arguments ask for, and returns the code to
// exit with. Done is false if they ask for nothing. Behind the host arguments
// that are not known are left alone: host.json may have some for the app.
func runCommand(app App, args []string, out, errs io.Writer) (code int, done bool) {
	if len(args) == 0 {
		return exitOK, false
	}
	for _, c := range appCommands {
		if args[0] != c.name {
			continue
		}
		if c.run == nil { // it has codes of its own to exit with
			return hubCommand(app, args[1:], out, errs), true
		}
		if err := c.run(app, args[1:], out); err != nil {
			_, _ = fmt.Fprintln(errs, err)
			return exitFailed, true
		}
		return exitOK, true
	}
	if env, err := readProcessEnvironment(); err != nil || env.behindHost() {
		return exitOK, false
	}
	_, _ = fmt.Fprintf(errs, "%q is no command. Without one the program serves the app. Commands are:\n", args[0])
	for _, c := range appCommands {
		_, _ = fmt.Fprintf(errs, "  %s %s\n        %s\n", c.name, c.args, c.does)
	}
	return exitUsage, true
}

// mainCommand is runCommand for this process.
func mainCommand(app App) (code int, done bool) {
	return runCommand(app, os.Args[1:], os.Stdout, os.Stderr)
}
