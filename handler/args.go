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
	run  func(app App, args []string, out io.Writer) error
}

// appCommands lists all commands in the order of the usage text.
var appCommands = []appCommand{
	{"-write-functions", "[-per-route] [FOLDER]", "write the function.json of each trigger below FOLDER, the folder of host.json", writeFunctionsCommand},
	{"hub", "VERB …", "work on the task hub; hub --help lists the verbs", nil},
	{"-schema", "", "write the JSON schema of host.json, for editors", schemaCommand},
	{"-openapi", "", "write the OpenAPI document of the management API, for tools and generated clients", openAPICommand},
	{"-init", newapp.Usage, "write a new app into FOLDER; if one is there, show how a new one differs", initCommand},
	{"package", "[-o FILE]", "write the zip file that the app runs from in Azure, by default bin/app.zip", packageCommand},
	{"deploy", "[-template FILE] [-skip-verify] RESOURCE-GROUP NAME [PARAMETER=VALUE …]", "package the app and deploy it to Azure Functions, with the Azure CLI", deployCommand},
}

// The arguments that print the usage text and the version.
var (
	helpWords    = []string{"--help", "-help", "-h", "help"}
	versionWords = []string{"--version", "-version", "version"}
)

// runCommand runs the command in args and returns the exit code. It returns done = false if the program
// must serve the app. That is the case if args is empty, or if the program runs behind the Functions
// host and args is not a command. The host may pass arguments from host.json that are meant for the
// app.
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
		if len(args) > 1 && slices.Contains(helpWords, args[1]) {
			c.usage(out)
			return exitOK, true
		}
		if len(args) > 1 && slices.Contains(versionWords, args[1]) {
			_, _ = fmt.Fprintln(out, programVersion(debug.ReadBuildInfo()))
			return exitOK, true
		}
		if err := c.run(app, args[1:], out); err != nil {
			_, _ = fmt.Fprintln(errs, err)
			return exitFailed, true
		}
		return exitOK, true
	}
	if env, err := settings.ReadEnvironment(); err != nil || env.BehindHost() {
		return exitOK, false
	}
	switch {
	case slices.Contains(versionWords, args[0]):
		_, _ = fmt.Fprintln(out, programVersion(debug.ReadBuildInfo()))
		return exitOK, true
	case slices.Contains(helpWords, args[0]):
		programUsage(out)
		return exitOK, true
	}
	_, _ = fmt.Fprintf(errs, "%q is not a command. ", args[0])
	programUsage(errs)
	return exitUsage, true
}

func programUsage(out io.Writer) {
	_, _ = fmt.Fprintln(out, "Without a command the program serves the app. Commands are:")
	for _, c := range appCommands {
		c.usage(out)
	}
	_, _ = fmt.Fprintln(out, "  --help, --version\n        print this, or the version of the program")
}

func (c appCommand) usage(out io.Writer) {
	_, _ = fmt.Fprintf(out, "  %s\n        %s\n", strings.TrimSpace(c.name+" "+c.args), c.does)
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
