package apppackage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Deployment describes where an app is deployed. It needs the Azure CLI, az, with a signed-in user. The user must have
// the rights to assign roles in the resource group and to write to the blobs of the app's storage account. It was tested
// only with a simulated az.
type Deployment struct {
	ResourceGroup string
	Name          string   // of the function app
	Parameters    []string // of the template, as name=value
	Template      string   // a Bicep file
	Zip           string   // the app's package
	// Verify replays the app's running instances with this program. Environment variables give it the app's
	// storage account, and the app's settings that replace values of host.json.
	Verify func(ctx context.Context, env []string) error
	// Az runs the Azure CLI and returns its output. Default: the program az.
	Az func(ctx context.Context, args ...string) (string, error)
	// Out gets one line for each step.
	Out io.Writer
}

var appName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,58}[A-Za-z0-9]$`)

// Run creates or updates the resources, uploads the package, and lets the app run from it. An app that exists keeps
// its current package until the new one is uploaded. If running instances do not fit the new program, Run
// changes nothing but the resources.
func (d *Deployment) Run(ctx context.Context) error {
	if d.Az == nil {
		d.Az = az
	}
	if !appName.MatchString(d.Name) {
		return fmt.Errorf("app name %q: want 2 to 60 letters, digits and hyphens; it becomes part of a host name", d.Name)
	}
	blob, err := d.blobName()
	if err != nil {
		return err
	}
	current, err := d.current(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("deploy needs the Azure CLI: %w", err)
	}
	if err != nil {
		return err
	}
	running, err := d.packageIn(current)
	if err != nil {
		return err
	}

	d.say("Creating or updating %s in %s", d.Name, d.ResourceGroup)
	if err := d.create(ctx, running); err != nil {
		return err
	}
	account, err := d.output(ctx, "account")
	if err != nil {
		return err
	}
	if current != "" && d.Verify != nil {
		d.say("Replaying the running instances of %s with the new program", d.Name)
		replaced, err := d.hostSettings(ctx)
		if err != nil {
			return err
		}
		if err := d.Verify(ctx, append(replaced, "AzureWebJobsStorage__accountName="+account, "WEBSITE_SITE_NAME="+d.Name)); err != nil {
			return fmt.Errorf("the running instances do not fit the new program, so it was not deployed: %w", err)
		}
	}
	d.say("Uploading %s to %s", blob, account)
	if _, err := d.Az(ctx, "storage", "blob", "upload", "--auth-mode", "login", "--account-name", account, "--container-name", "packages",
		"--name", blob, "--file", d.Zip, "--overwrite", "--no-progress", "--output", "none"); err != nil {
		return err
	}
	if err := d.create(ctx, blob); err != nil {
		return err
	}
	if err := d.syncTriggers(ctx); err != nil {
		return err
	}
	host, err := d.output(ctx, "host")
	if err != nil {
		return err
	}
	d.say("https://%s/api", host)
	return nil
}

// blobName returns a name for the package that depends on its content.
func (d *Deployment) blobName() (string, error) {
	content, err := os.ReadFile(d.Zip)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return fmt.Sprintf("%s-%x.zip", d.Name, sum[:8]), nil
}

// create creates or updates the resources. The app runs from the named package.
func (d *Deployment) create(ctx context.Context, blob string) error {
	args := append([]string{
		"deployment", "group", "create", "--resource-group", d.ResourceGroup, "--name", d.Name, "--template-file", d.Template,
		"--output", "none", "--parameters", "name=" + d.Name, "package=" + blob,
	}, d.Parameters...)
	_, err := d.Az(ctx, args...)
	return err
}

// output returns an output of the template.
func (d *Deployment) output(ctx context.Context, name string) (string, error) {
	return d.Az(ctx, "deployment", "group", "show", "--resource-group", d.ResourceGroup, "--name", d.Name,
		"--query", "properties.outputs."+name+".value", "--output", "tsv")
}

// current returns the URL of the package that the app runs from. It is empty if the app does not exist.
func (d *Deployment) current(ctx context.Context) (string, error) {
	names, err := d.Az(ctx, "functionapp", "list", "--resource-group", d.ResourceGroup, "--query", "[].name", "--output", "tsv")
	if err != nil || !slices.ContainsFunc(strings.Fields(names), func(name string) bool { return strings.EqualFold(name, d.Name) }) {
		return "", err
	}
	return d.settings(ctx, "[?name=='WEBSITE_RUN_FROM_PACKAGE'].value")
}

// packageIn returns the name of the package that the app runs from, for the template. current is the app's setting, which
// may be empty. packageIn returns an error if another tool has set it.
func (d *Deployment) packageIn(current string) (string, error) {
	if current == "" {
		return "", nil
	}
	if u, err := url.Parse(current); err == nil && u.Host != "" && u.RawQuery == "" {
		if name, ok := strings.CutPrefix(u.Path, "/packages/"); ok && name != "" && !strings.Contains(name, "/") {
			return name, nil
		}
	}
	value, _, signed := strings.Cut(current, "?")
	if signed {
		value += "?…"
	}
	return "", fmt.Errorf("the app %s runs from WEBSITE_RUN_FROM_PACKAGE=%s, which another tool has set. The template would replace it by the URL of a "+
		"package that does not exist, and the app would stop. Upload the current package to the container packages of the storage account in the template and set "+
		"WEBSITE_RUN_FROM_PACKAGE to its URL without a signature, or deploy to an app with another name", d.Name, value)
}

// settings returns the result of a query on the app's settings, one per line.
func (d *Deployment) settings(ctx context.Context, query string) (string, error) {
	return d.Az(ctx, "functionapp", "config", "appsettings", "list", "--resource-group", d.ResourceGroup, "--name", d.Name,
		"--query", query, "--output", "tsv")
}

// hostSettings returns the app's settings that replace values of host.json, such as the type of its storage, in the
// form of environment variables.
func (d *Deployment) hostSettings(ctx context.Context) (env []string, err error) {
	rows, err := d.settings(ctx, "[?starts_with(name, 'AzureFunctionsJobHost__')].[name, value]")
	for row := range strings.SplitSeq(rows, "\n") {
		if name, value, ok := strings.Cut(strings.TrimRight(row, "\r"), "\t"); ok {
			env = append(env, name+"="+value)
		}
	}
	return env, err
}

// syncTriggers tells the platform that the app's functions, and so its triggers, may have changed.
func (d *Deployment) syncTriggers(ctx context.Context) error {
	id, err := d.Az(ctx, "functionapp", "show", "--resource-group", d.ResourceGroup, "--name", d.Name, "--query", "id", "--output", "tsv")
	if err != nil {
		return err
	}
	_, err = d.Az(ctx, "rest", "--method", "post", "--output", "none", "--uri", id+"/syncfunctiontriggers?api-version=2023-12-01")
	return err
}

func (d *Deployment) say(format string, args ...any) { _, _ = fmt.Fprintf(d.Out, format+"\n", args...) }

// az runs the Azure CLI. Its messages go to standard error.
func az(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "az", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("az %s: %w", strings.Join(args[:min(3, len(args))], " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// CheckDeployable returns an error if a Functions plan cannot run the app in the folder root.
func CheckDeployable(root string) error {
	host, err := readHostFile(root)
	if err != nil {
		return err
	}
	if strings.EqualFold(host.Extensions.DurableTask.StorageProvider.Type, "embedded") {
		return fmt.Errorf("%s keeps the task hub in a local file (storageProvider.type is embedded), and a Functions plan loses local files "+
			"when it moves the app: remove the setting, so that the hub is in the storage account of AzureWebJobsStorage, or run the app in one container with a disk",
			filepath.Join(root, "host.json"))
	}
	_, err = executablePath(root)
	return err
}
