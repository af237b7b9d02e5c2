package handler

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/newapp"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// An appCommand is a command in the program's arguments, which runs instead of the server.
type appCommand struct {
	name string // the first argument
	args string // further arguments, for the usage text
	does string
	app  bool // the command needs the app, so [Tool] does not have it
	run  func(app App, args []string, out io.Writer) error
	more string // follows in the help of the command alone
}

// call runs the command, or prints its usage text or the version. It returns the exit code.
func (c appCommand) call(app App, args []string, out, errs io.Writer) (code int) {
	switch {
	case c.run == nil: // it has codes of its own to exit with
		return hubCommand(app, args, out, errs)
	case len(args) > 0 && slices.Contains(helpWords, args[0]), slices.ContainsFunc(args, isHelpFlag):
		c.usage(out)
		_, _ = io.WriteString(out, c.more)
		return exitOK
	case len(args) > 0 && slices.Contains(versionWords, args[0]):
		_, _ = fmt.Fprintln(out, programVersion(debug.ReadBuildInfo()))
		return exitOK
	}
	if err := c.run(app, args, out); err != nil {
		_, _ = fmt.Fprintln(errs, err)
		return exitFailed
	}
	return exitOK
}

func (c appCommand) usage(out io.Writer) {
	_, _ = fmt.Fprintf(out, "  %s\n        %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
}

// appCommands lists all commands in the order of the usage text.
var appCommands = []appCommand{
	{"-write-functions", "[-per-route] [FOLDER]", "write the function.json of each trigger below FOLDER, the folder of host.json", true, writeFunctionsCommand, ""},
	{"hub", "VERB …", "work on the task hub; hub --help lists the verbs", false, nil, ""},
	{"-schema", "", "write the JSON schema of host.json, for editors", false, schemaCommand, ""},
	{"-openapi", "", "write the OpenAPI document of the management API, for tools and generated clients", false, openAPICommand, ""},
	{"-init", newapp.Usage, "write a new app into FOLDER; if one is there, show how a new one differs", false, initCommand, newapp.Flags},
	{"package", "[-per-route] [-o FILE]", "write the zip file that the app runs from in Azure, by default bin/app.zip", true, packageCommand, ""},
	{"deploy", "[-per-route] [-template FILE] [-skip-verify] RESOURCE-GROUP NAME [PARAMETER=VALUE …]", "package the app and deploy it to Azure Functions, with the Azure CLI", true, deployCommand, ""},
}

// The arguments that print the usage text and the version.
var (
	helpWords    = []string{"--help", "-help", "-h", "help"}
	versionWords = []string{"--version", "-version", "version"}
)

// isHelpFlag reports whether a word asks for help among the arguments of a command.
func isHelpFlag(word string) bool {
	return strings.HasPrefix(word, "-") && slices.Contains(helpWords, word)
}

// runCommand runs the command in args and returns the exit code. It returns done = false if the program
// must serve the app. That is the case if args is empty, or if the program runs behind the Functions
// host and args is not a command. The host may pass arguments from host.json that are meant for the
// app.
func runCommand(app App, args []string, out, errs io.Writer) (code int, done bool) {
	if len(args) == 0 {
		return exitOK, false
	}
	if c, ok := commandNamed(appCommands, args[0]); ok {
		return c.call(app, args[1:], out, errs), true
	}
	if env, err := settings.ReadEnvironment(); err != nil || env.BehindHost() {
		return exitOK, false
	}
	return generalCommand(appCommands, "Without a command the program serves the app. Commands are:", args[0], out, errs), true
}

// Tool runs the program's arguments as a command that needs no app, and then exits the process. It never
// returns. Like an app, it reads the configuration in the working directory, which names the task hub.
// Because the program has no functions, it explains instances by their histories alone, and refuses to
// verify them.
func Tool() { os.Exit(toolCommand(os.Args[1:], os.Stdout, os.Stderr)) }

// toolCommand runs the command in args and returns the exit code.
func toolCommand(args []string, out, errs io.Writer) int {
	commands := slices.DeleteFunc(slices.Clone(appCommands), func(c appCommand) bool { return c.app })
	const title = "Works on task hubs without an app. Commands are:"
	if len(args) == 0 {
		programUsage(commands, title, errs)
		return exitUsage
	}
	if c, ok := commandNamed(commands, args[0]); ok {
		return c.call(App{}, args[1:], out, errs)
	}
	if _, ok := commandNamed(appCommands, args[0]); ok {
		_, _ = fmt.Fprintf(errs, "%q needs the code of an app: run it with the app's own program.\n", args[0])
		return exitUsage
	}
	return generalCommand(commands, title, args[0], out, errs)
}

// commandNamed returns the command with a name. Two dashes mean the same as one.
func commandNamed(commands []appCommand, name string) (appCommand, bool) {
	at := slices.IndexFunc(commands, func(c appCommand) bool {
		return c.name == name || strings.HasPrefix(c.name, "-") && "-"+c.name == name
	})
	if at < 0 {
		return appCommand{}, false
	}
	return commands[at], true
}

// generalCommand prints the version or the usage text, as arg asks. For another argument it prints an error.
func generalCommand(commands []appCommand, title, arg string, out, errs io.Writer) (code int) {
	switch {
	case slices.Contains(versionWords, arg):
		_, _ = fmt.Fprintln(out, programVersion(debug.ReadBuildInfo()))
		return exitOK
	case slices.Contains(helpWords, arg):
		programUsage(commands, title, out)
		return exitOK
	}
	_, _ = fmt.Fprintf(errs, "%q is not a command. ", arg)
	programUsage(commands, title, errs)
	return exitUsage
}

func programUsage(commands []appCommand, title string, out io.Writer) {
	_, _ = fmt.Fprintln(out, title)
	for _, c := range commands {
		c.usage(out)
	}
	_, _ = fmt.Fprintln(out, "  --help, --version\n        print this, or the version of the program")
}

// thisModule is the path of the module that contains this package.
const thisModule = "github.com/durablefunctions-go/durablefunctions"

// programVersion returns the versions of the program, of this module and of Go, as recorded in the
// build information.
func programVersion(build *debug.BuildInfo, ok bool) string {
	if !ok {
		return "the program was built without version information"
	}
	text := fmt.Sprintf("%s %s", build.Main.Path, build.Main.Version)
	for _, module := range build.Deps {
		if module.Path == thisModule {
			text += fmt.Sprintf(", %s %s", module.Path, module.Version)
		}
	}
	return text + ", " + build.GoVersion
}

// mainCommand calls [runCommand] with the arguments and standard streams of this process.
func mainCommand(app App) (code int, done bool) {
	return runCommand(app, os.Args[1:], os.Stdout, os.Stderr)
}

// schemaCommand writes the JSON schema of host.json.
func schemaCommand(_ App, _ []string, out io.Writer) error {
	text, err := settings.HostSchema(settingRows())
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// openAPICommand writes the OpenAPI document for an app with the default route prefix.
func openAPICommand(_ App, _ []string, out io.Writer) error {
	base := "/" + DefaultRoutePrefix + web.ManagementPath
	return json.NewEncoder(out).Encode(management.OpenAPIDocument(management.Routes(), base))
}
