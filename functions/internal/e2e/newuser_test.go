//go:build unix

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/docblock"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"go.yaml.in/yaml/v3"
)

// A newUser has a new app that was created with the commands of the documentation.
type newUser struct {
	*testing.T
	root, storage, host string
	proxy               string // the module proxy of files
	tools, calls        string // a folder with simulated tools, and the file that lists their calls
	linked              string // a folder with the programs of earlier apps of this host
}

// A new user gets an app that is tested and packaged, for each storage and host.
//
// Each of the six apps is created with the commands of the page, passes `go vet`, is built, replays its recorded history,
// is deployed with simulated tools, and runs an orchestration in its storage from its package or image.
//
// Apps of one host have the same code. The first app for Functions also runs the other steps that check code, and the
// commands of its README. The code of a container differs in its metrics only, so its first app only runs as in the README.
// The job deploy packages the app too, so only the app without this job runs the step `bin/app package`.
func TestInit_ANewUserGetsATestedAndPackagedApp(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	lib, linked := published(t), t.TempDir()
	known := map[string]bool{}
	for _, storage := range []string{"azurestorage", "partitionlog", "embedded"} {
		for _, host := range []string{"functions", "container"} {
			t.Run(storage+" "+host, func(t *testing.T) {
				u := followPage(t, lib, storage, host)
				u.linked = filepath.Join(linked, host)
				isNew := !known[u.code()]
				known[u.code()] = true
				u.reusing("app", filepath.Join(u.root, "bin", "app"), func() {
					u.runTests(isNew && host == "functions")
					u.runDeployment()
				})
				if isNew {
					u.followREADME(host == "functions")
				}
				if host == "functions" {
					u.runPackage()
				} else {
					u.runImage()
				}
			})
		}
	}
}

// reusing copies the program of an earlier app of the host to the path of a program before it calls build. The go command links
// the program again only if the code differs.
func (u *newUser) reusing(name, program string, build func()) {
	u.Helper()
	earlier := filepath.Join(u.linked, name)
	if _, err := os.Stat(earlier); err == nil {
		u.copyFile(earlier, program)
	}
	build()
	u.copyFile(program, earlier)
}

func (u *newUser) copyFile(from, to string) {
	u.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
	}
	if err != nil {
		u.Fatal(err)
	}
}

// followPage creates an app with the commands of the page, and with flags for storage and host.
func followPage(t *testing.T, lib library, storage, host string) *newUser {
	t.Helper()
	blocks, _, err := docblock.Read(filepath.Join(checkout, "durable", "docs", "start-app.md"))
	if err != nil {
		t.Fatal(err)
	}
	var page []string
	for _, c := range blocks[0].Commands() {
		page = append(page, c.Text)
	}
	if len(page) != 4 || !strings.HasSuffix(page[0], "@latest -init shop") || page[1] != "cd shop" || page[3] != "go run ." {
		t.Fatalf("the page has %q; want commands that create an app, enter its folder, load its modules and run it", page)
	}
	folder, tools := t.TempDir(), t.TempDir()
	u := &newUser{T: t, root: folder, storage: storage, host: host, proxy: lib.proxy, tools: tools, calls: filepath.Join(tools, "calls")}
	for _, tool := range []string{"az", "docker", "kubectl"} {
		if err := os.WriteFile(filepath.Join(tools, tool), []byte(strings.ReplaceAll(simulated, "CALLS", u.calls)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u.sh(strings.Replace(page[0], "-init", "-init --storage "+storage+" --host "+host, 1), "GOPROXY="+lib.proxy+",off")
	u.root = filepath.Join(folder, "shop")
	u.sh(page[2], "GOPROXY="+lib.proxy+","+environmentProxy(t)) // for the go.mod files that the module cache lacks
	return u
}

// environmentProxy returns the module proxy of this machine.
func environmentProxy(t *testing.T) string {
	t.Helper()
	proxy, err := exec.CommandContext(t.Context(), "go", "env", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(proxy))
}

// simulated is a tool for deployments. The function app does not exist.
const simulated = `#!/bin/sh
echo "${0##*/} $*" >>CALLS
case $* in
  *outputs.account*) echo stshop ;;
  *outputs.host*) echo shop.azurewebsites.net ;;
  "functionapp show"*) echo /subscriptions/s/sites/shop ;;
esac
`

// oneBuild makes all commands compile the library like the app's package and image, so the go command compiles it once.
// Tests run without vet, because `go vet` is a step of its own.
var oneBuild = []string{"CGO_ENABLED=0", "GOFLAGS=-modcacherw -trimpath -vet=off"}

// sh runs a command in the app's folder and returns its output.
func (u *newUser) sh(command string, env ...string) string {
	u.Helper()
	cmd := exec.CommandContext(u.Context(), "bash", "-e", "-o", "pipefail", "-c", command)
	cmd.Dir = u.root
	cmd.Env = append(environment(oneBuild...), "GOPROXY="+u.proxy+",off", "GOSUMDB=off", "GOWORK=off", "PATH="+u.tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// read returns a file of the app.
func (u *newUser) read(name string) []byte {
	u.Helper()
	content, err := os.ReadFile(filepath.Join(u.root, filepath.FromSlash(name)))
	if err != nil {
		u.Fatal(err)
	}
	return content
}

// code returns a hash of the app's code.
func (u *newUser) code() string {
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go", "main_test.go", recorded} {
		_, _ = fmt.Fprintf(hash, "%s %q\n", name, u.read(name))
	}
	return string(hash.Sum(nil))
}

// recorded is the recorded history of a new app.
const recorded = "testdata/histories/place-order.json"

// A workflow is the CI workflow of an app.
type workflow struct {
	Jobs map[string]struct {
		If          string
		Permissions map[string]string
		Steps       []workflowStep
	}
}

type workflowStep struct {
	Uses, Run string
	With, Env map[string]string
}

func (u *newUser) workflow() (w workflow) {
	u.Helper()
	if err := yaml.Unmarshal(u.read(".github/workflows/ci.yml"), &w); err != nil {
		u.Fatal(err)
	}
	return w
}

// actionsOf are the actions of a new app's workflow.
var actionsOf = regexp.MustCompile(`^(actions/(checkout|setup-go|upload-artifact)|azure/login)@[0-9a-f]{40}$`)

// values are the values of expressions in the workflow.
var values = strings.NewReplacer("${{ github.sha }}", "0123abc", "${{ vars.RESOURCE_GROUP }}", "shop-rg",
	"${{ vars.REGISTRY }}", "shop.azurecr.io", "${{ vars.CLUSTER }}", "shop-cluster")

// run runs a step of the workflow. A step that uploads a file needs it.
func (u *newUser) run(step workflowStep) {
	u.Helper()
	if step.Uses != "" {
		if !actionsOf.MatchString(step.Uses) {
			u.Errorf("the workflow uses %s", step.Uses)
		}
		if strings.HasPrefix(step.Uses, "actions/upload-artifact@") {
			u.read(step.With["path"])
		}
		return
	}
	// The nightly job runs TestInit_TheNewAppPassesItsTestsAndRunsItsFirstOrchestration with the race detector.
	command := strings.Replace(values.Replace(step.Run), "go test -race", "go test", 1)
	if strings.Contains(command, "${{") {
		u.Errorf("the test has no value for %s", command)
	}
	var env []string
	for name, value := range step.Env {
		env = append(env, name+"="+values.Replace(value))
	}
	u.sh(command, env...)
}

// runTests runs the steps of the job test. It runs the steps that only check code, except `go vet`, with checksCode. It
// skips the steps with the package if the job deploy packages the app.
func (u *newUser) runTests(checksCode bool) {
	u.Helper()
	jobs := u.workflow().Jobs
	_, deploys := jobs["deploy"]
	ran := 0
	for _, step := range jobs["test"].Steps {
		checks := regexp.MustCompile(`^go (tool|test) `).MatchString(step.Run)
		packages := step.Run == "bin/app package" || strings.HasPrefix(step.Uses, "actions/upload-artifact@")
		if checks && !checksCode || packages && deploys {
			continue
		}
		u.run(step)
		ran++
	}
	if ran < 5 {
		u.Errorf("the workflow has only %d steps", ran)
	}
}

// runDeployment runs the steps of the job deploy with simulated tools.
func (u *newUser) runDeployment() {
	u.Helper()
	job, exists := u.workflow().Jobs["deploy"]
	if exists != (u.host != "functions" || u.storage != "embedded") {
		u.Fatalf("the workflow deploys: %t", exists)
	}
	if !exists {
		return
	}
	if !strings.Contains(job.If, "github.ref == 'refs/heads/main' &&") || job.Permissions["id-token"] != "write" {
		u.Errorf("the job runs if %s, with permissions %v; want only the main branch, and OIDC", job.If, job.Permissions)
	}
	for _, step := range job.Steps {
		u.run(step)
	}
	workload := "deployment/shop"
	if u.storage == "embedded" {
		workload = "statefulset/shop"
	}
	parameter := map[string]string{"partitionlog": " storageType=partitionLog"}[u.storage]
	want := map[string][]string{
		"functions": {
			`az deployment group create --resource-group shop-rg --name shop --template-file infra/main\.bicep .* package=shop-[0-9a-f]{16}\.zip` + parameter,
			`az storage blob upload .* --file bin/app\.zip .*`, `az rest --method post .*`,
		},
		"container": {
			`docker build --tag shop:0123abc \.`, `docker build --tag shop\.azurecr\.io/shop:0123abc \.`, `docker push shop\.azurecr\.io/shop:0123abc`,
			`kubectl apply --filename deploy/kubernetes\.yaml`, `kubectl set image ` + workload + ` app=shop\.azurecr\.io/shop:0123abc`, `kubectl rollout status ` + workload,
		},
	}[u.host]
	calls, err := os.ReadFile(u.calls)
	if err != nil {
		u.Fatal(err)
	}
	for _, call := range want {
		if !regexp.MustCompile(`(?m)^` + call + `$`).Match(calls) {
			u.Errorf("no call matches %s:\n%s", call, calls)
		}
	}
}

// followREADME runs the app as in its README, and requests the URLs in it. With records, it uses the README's
// `go run` and records the history again. Otherwise it runs bin/app.
func (u *newUser) followREADME(records bool) {
	u.Helper()
	blocks, prose, err := docblock.Read(filepath.Join(u.root, "README.md"))
	if err != nil {
		u.Fatal(err)
	}
	var commands []string
	for _, b := range blocks[:3] {
		for _, c := range b.Commands() {
			commands = append(commands, c.Text)
		}
	}
	if len(commands) != 4 || commands[1] != "go run ." || !strings.HasPrefix(commands[2], "curl ") || commands[3] != "go test ./..." {
		u.Fatalf("the README has the commands %q", commands)
	}
	start := commands[1]
	if !records {
		start = "bin/app"
	}
	p := run(u.T, u.root, environment(append(oneBuild, "PORT=0", "GOPROXY=off")...), "sh", "-c", start)
	a := &app{p, p.awaitLog(`msg=listening address=(\S+)`, 0)[1], u.root}
	eventually(u.T, 0, "the app to be ready", func() bool {
		got, err := a.try(http.MethodGet, "/health/ready", nil)
		return err == nil && got.status == http.StatusOK
	})
	answer := u.sh(strings.ReplaceAll(commands[2], "http://localhost:8080", a.url))
	location := regexp.MustCompile(`(?m)^HTTP/1\.1 202 [\s\S]*^Location: (\S+)`).FindStringSubmatch(answer)
	if location == nil {
		u.Fatalf("%s answers\n%s", commands[2], answer)
	}
	if order := a.await(location[1], time.Minute); order.RuntimeStatus != "Completed" || !strings.HasPrefix(string(order.Output), receipt) {
		u.Errorf("the order is %s with output %s", order.RuntimeStatus, order.Output)
	}
	for _, url := range regexp.MustCompile(`http://localhost:8080\S*`).FindAllString(strings.Join(prose, "\n"), -1) {
		if got := a.call(http.MethodGet, strings.ReplaceAll(url, "http://localhost:8080", a.url), nil); got.status != http.StatusOK {
			u.Errorf("%s of the README answers %d", url, got.status)
		}
	}
	if !records {
		return
	}
	before := u.read(recorded)
	u.sh("go test . -record")
	if !bytes.Equal(u.read(recorded), before) {
		u.Errorf("the recorded history changes when the test writes it again:\n%s", u.read(recorded))
	}
}

// typePath is the path of the setting with the type of the storage.
const typePath = "extensions.durableTask.storageProvider.type"

// sellsFrom places an order and checks the type of the storage.
func (u *newUser) sellsFrom(a *app, key string) {
	u.Helper()
	a.sells()
	got := a.call(http.MethodGet, "/api/durabletask/configuration?code="+key, nil)
	want := map[string]string{"azurestorage": "AzureStorage", "partitionlog": "partitionLog", "embedded": "embedded"}[u.storage]
	if !regexp.MustCompile(`"name":"` + regexp.QuoteMeta(typePath) + `","value":"` + want + `"`).MatchString(got.body) {
		u.Errorf("the storage is not %s: %d %s", want, got.status, got.body)
	}
}

// inStorage returns the variables that put the hub of a deployed app into Azurite. The hub has a unique name.
func (u *newUser) inStorage() (env []string) {
	u.Helper()
	if u.storage == "embedded" {
		return nil
	}
	return []string{"AzureWebJobsStorage=" + azuritetest.Start(u.T), "AzureFunctionsJobHost__extensions__durableTask__hubName=" + newHub()}
}

// files returns the names of the files in a folder.
func (u *newUser) files(root string) (names []string) {
	u.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		u.Fatal(err)
	}
	return names
}

// runPackage runs the app from its package: below the real host with queues and tables, otherwise alone with the settings
// of the Bicep template.
func (u *newUser) runPackage() {
	u.Helper()
	root := unzipped(u.T, filepath.Join(u.root, "bin", "app.zip"))
	if got := u.files(root); !slices.Equal(got, []string{"bin/app", "durable-console/function.json", "functions/function.json", "host.json"}) {
		u.Errorf("the package has the files %q", got)
	}
	program, env := filepath.Join(u.TempDir(), "app"), u.inStorage() // startHost links it
	if err := os.Rename(filepath.Join(root, "bin", "app"), program); err != nil {
		u.Fatal(err)
	}
	built := func() (string, error) { return program, nil }
	if u.storage != "azurestorage" {
		if u.storage == "partitionlog" {
			env = append(env, strings.ReplaceAll("AzureFunctionsJobHost."+typePath, ".", "__")+"=partitionLog")
		}
		u.sellsFrom(startStandalone(u.T, built, root, env...), "")
		return
	}
	settings := map[string]string{"FUNCTIONS_WORKER_RUNTIME": "custom"}
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		settings[name] = value
	}
	writeJSON(u.T, filepath.Join(root, "local.settings.json"), map[string]any{"IsEncrypted": false, "Values": settings})
	u.sellsFrom(startHost(u.T, built, root), "")
}

// A deployed is a document of deploy/kubernetes.yaml.
type deployed struct {
	Kind string
	Spec struct {
		Triggers []struct{ Metadata map[string]string }
		Template struct {
			Spec struct {
				Containers []struct {
					Env            []struct{ Name, Value string }
					ReadinessProbe probe `yaml:"readinessProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
				}
			}
		}
	}
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// manifest returns the variables of the app's container with values, the paths of its probes, and the path that KEDA
// requests, if the app has them in deploy/kubernetes.yaml.
func (u *newUser) manifest() (env, probes []string, scale string) {
	u.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(u.read("deploy/kubernetes.yaml"))); ; {
		var part deployed
		if err := d.Decode(&part); errors.Is(err, io.EOF) {
			return env, probes, scale
		} else if err != nil {
			u.Fatal(err)
		}
		for _, c := range part.Spec.Template.Spec.Containers {
			probes = append(probes, c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path)
			for _, v := range c.Env {
				if v.Value != "" {
					env = append(env, v.Name+"="+v.Value)
				}
			}
		}
		for _, trigger := range part.Spec.Triggers {
			_, scale, _ = strings.Cut(trigger.Metadata["url"], ".svc:8080")
		}
	}
}

// runImage runs the app from the files of its image, with the variables of the manifest. It sends the requests of the
// probes, of Prometheus and of KEDA.
func (u *newUser) runImage() {
	u.Helper()
	image, env := u.image()
	if got := u.files(image); !slices.Equal(got, []string{"app", "host.json"}) {
		u.Errorf("the image has the files %q", got)
	}
	const key, readKey = "0123456789abcdef", "a-key-for-reading"
	variables, paths, scale := u.manifest()
	for _, v := range variables {
		switch {
		case v == "AzureWebJobsStorage__accountName=ACCOUNT": // Azurite has no identities
		case v == "DURABLE_LOG_FORMAT=json": // startStandalone reads text
		default:
			env = append(env, strings.Replace(v, "=/data/", "="+u.TempDir()+"/", 1))
		}
	}
	env = append(append(env, u.inStorage()...), "PORT=0", "DURABLE_KEY="+key, "DURABLE_READ_KEY="+readKey)
	program := filepath.Join(image, "app")
	a := startStandalone(u.T, func() (string, error) { return program, nil }, image, env...)
	u.sellsFrom(a, key)
	for _, path := range append(paths, "/metrics?code="+readKey) {
		if got := a.call(http.MethodGet, path, nil); got.status != http.StatusOK {
			u.Errorf("%s answers %d %s", path, got.status, got.body)
		}
	}
	if isScaled := scale != ""; isScaled != (u.storage != "embedded") {
		u.Fatalf("KEDA scales the app: %t", isScaled)
	}
	if scale != "" {
		got := a.call(http.MethodGet, scale+"?code="+readKey, nil)
		if n := decode[struct{ TargetWorkerCount *int }](u.T, got.body).TargetWorkerCount; got.status != http.StatusOK || n == nil {
			u.Errorf("%s answers KEDA %d %s", scale, got.status, got.body)
		}
	}
}
