package handler

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/apppackage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/newapp"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// initCommand runs the command -init.
func initCommand(_ App, args []string, out io.Writer) error {
	return newapp.Run(args, libraryVersion(debug.ReadBuildInfo()), out)
}

// libraryVersion returns the published version of this module in the program. It is empty if the program was built from
// a checkout: the go command records a checksum only for a module that it downloaded.
func libraryVersion(build *debug.BuildInfo, ok bool) string {
	if !ok {
		return ""
	}
	for _, m := range append([]*debug.Module{&build.Main}, build.Deps...) {
		if m.Path == thisModule && m.Replace == nil && m.Sum != "" {
			return m.Version
		}
	}
	return ""
}

// packageCommand runs the command package.
func packageCommand(app App, args []string, out io.Writer) error {
	flags := newFlags("package")
	zip := flags.String("o", filepath.Join("bin", "app.zip"), "")
	perRoute := flags.Bool("per-route", false, "")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	return packageApp(app, *zip, *perRoute, out)
}

// packageApp writes the function.json files and the zip file of the app in the working directory. Each route gets its
// own function if perRoute is true, or if the directory has such functions.
func packageApp(app App, zip string, perRoute bool, out io.Writer) error {
	if err := writeFunctions(app, ".", perRoute || triggers.IsGenerated(managementFunction), io.Discard); err != nil {
		return err
	}
	mainPackage := ""
	if build, ok := debug.ReadBuildInfo(); ok {
		mainPackage = build.Path
	}
	return apppackage.Package(context.Background(), ".", mainPackage, zip, out)
}

// deployCommand runs the command deploy.
func deployCommand(app App, args []string, out io.Writer) error {
	flags := newFlags("deploy")
	template := flags.String("template", filepath.Join("infra", "main.bicep"), "")
	skip := flags.Bool("skip-verify", false, "")
	perRoute := flags.Bool("per-route", false, "")
	if err := parseFlags(flags, args, -1); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return errors.New("deploy needs a resource group and the name of the app")
	}
	if err := apppackage.CheckDeployable("."); err != nil {
		return err
	}
	d := apppackage.Deployment{
		ResourceGroup: flags.Arg(0), Name: flags.Arg(1), Parameters: flags.Args()[2:], Template: *template,
		Zip: filepath.Join("bin", "app.zip"), Out: out,
	}
	if _, err := os.Stat(d.Template); err != nil {
		return fmt.Errorf("the template of the app's resources: %w; a new app has one: -init --help", err)
	}
	if err := packageApp(app, d.Zip, *perRoute, out); err != nil {
		return err
	}
	if !*skip {
		d.Verify = verifyWith
	}
	return d.Run(context.Background())
}

// verifyWith runs the command hub verify of this program on the task hub of the deployed app. env has the settings of
// that app.
func verifyWith(ctx context.Context, env []string) error {
	cmd, err := verification(ctx, env)
	if err != nil {
		return err
	}
	return cmd.Run()
}

// verification returns the command that verifyWith runs.
func verification(ctx context.Context, env []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	local, err := settings.ReadLocalSettings(".")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "hub", "verify")
	cmd.Env, cmd.Stdout, cmd.Stderr = settings.DeployedEnvironment(os.Environ(), local, env), os.Stdout, os.Stderr
	return cmd, nil
}

func newFlags(command string) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

// parseFlags parses a command's arguments. At most most arguments may follow the flags; -1 means any number.
func parseFlags(flags *flag.FlagSet, args []string, most int) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", flags.Name(), err)
	}
	if most >= 0 && flags.NArg() > most {
		return fmt.Errorf("%s: unexpected arguments %q", flags.Name(), flags.Args()[most:])
	}
	return nil
}
