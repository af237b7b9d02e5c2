package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/google/go-cmp/cmp"
)

// rewrite makes tests write the files that they compare with.
var rewrite = flag.Bool("rewrite", false, "write the tables of settings, the schema and the files in testdata that tests compare with")

func TestSettings_EveryOneThatHasAnEffectIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{versionPath: true, timeoutPath: true, routePrefixPath: true}
	for _, c := range settingCases() {
		tested[c.path] = true
	}
	seen := map[string]bool{}
	for _, row := range settingRows() {
		if seen[strings.ToLower(row.Path)] {
			t.Errorf("%s has two rows", row.Path)
		}
		seen[strings.ToLower(row.Path)] = true
		if row.NeverEffective == "" && (!tested[row.Path] || row.Get == nil) {
			t.Errorf("%s has an effect, but no test or no get", row.Path)
		}
		if row.Description == "" || row.Default == "" || row.Values == nil {
			t.Errorf("%s has no description of its values, its default or its effect", row.Path)
		}
	}
}

// current compares a file with its wanted content, or writes it.
func current(t *testing.T, path, want string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s differs; run `go test ./handler -rewrite` and review the changes (-want +got):\n%s", path, diff)
	}
}

// settingsPage is the page of the documentation with all settings and environment variables.
const settingsPage = "../durable/docs/reference-settings.md"

func TestSettings_ThePageHasARowForEach(t *testing.T) {
	t.Parallel()
	pagetable.Check(t, settingsPage, *rewrite, map[string]string{
		"settings":                settingsTable(false),
		"settings without effect": settingsTable(true),
		"settings of some stores": storesTable(),
		"flat settings":           "`" + strings.Join(flatNames(), "`, `") + "`\n",
	})
}

const schemaFile = "host.schema.json"

func TestSettings_SchemaMatchesTheTable(t *testing.T) {
	t.Parallel()
	var schema, errs bytes.Buffer
	if code, done := runCommand(App{}, []string{"-schema"}, &schema, &errs); code != exitOK || !done || errs.Len() > 0 {
		t.Fatalf("-schema: code %d, %v, %s", code, done, errs.String())
	}
	current(t, schemaFile, schema.String())
}

// Users copy the host.json of the sample and of a new app. These files must be short JSON without
// comments, which every tool can read, and contain no invalid or ineffective settings.
func TestSettings_HostJSONsToCopyAreShortAndStrictJSON(t *testing.T) {
	t.Parallel()
	newApp := t.TempDir()
	if err := initCommand(App{}, []string{newApp}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../" + settings.HostJSONFile, newApp + "/" + settings.HostJSONFile, "../" + settings.LocalSettingsFile, newApp + "/" + settings.LocalSettingsFile} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(text, []byte("\n")); !json.Valid(text) || lines > 30 {
			t.Errorf("%s: %d lines, valid JSON %v; want at most 30 and true", path, lines, json.Valid(text))
		}
		if filepath.Base(path) != settings.HostJSONFile {
			continue
		}
		found, err := settings.ParseHostJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		cfg := configure(settings.Environment{}, found, []string{storageSetting})
		if cfg.Problem != nil || len(cfg.Notices) > 0 {
			t.Errorf("%s: problem %v, notices %q, want none", path, cfg.Problem, cfg.Notices)
		}
		if _, given := found.Lookup(settings.DurableTaskPath + ".storageProvider.maxQueuePollingInterval"); !given {
			t.Errorf("%s polls messages of other programs only every 30 s", path)
		}
	}
}

// The sample's host.json names its schema, so that editors find it.
func TestSettings_SampleHostJSONNamesItsSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../" + settings.HostJSONFile)
	if err != nil {
		t.Fatal(err)
	}
	var hint struct {
		Schema string `json:"$schema"`
	}
	if err := json.Unmarshal(text, &hint); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(hint.Schema))); err != nil || hint.Schema == "" {
		t.Errorf("$schema is %q: %v", hint.Schema, err)
	}
}

func TestSettings_FlatShapeOfVersion1IsRead(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{"durableTask": {
  "HubName": "Old1", "azureStorageConnectionStringName": "Other", "partitionCount": 3, "maxQueuePollingInterval": "00:00:02",
  "controlQueueBatchSize": 8, "logReplayEvents": true, "partitonCount": 2}}`, "AzureWebJobsOther=UseDevelopmentStorage=true",
		"AzureFunctionsJobHost__durableTask__partitionCount=5")
	got := []any{cfg.Storage.TaskHub, cfg.ConnectionName, cfg.Storage.PartitionCount, cfg.Storage.MaxQueuePollingInterval, cfg.Storage.ControlQueueBatchSize, cfg.Problem}
	if diff := cmp.Diff([]any{"Old1", "Other", 5, 2 * time.Second, 8, nil}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := `The setting durableTask.hubName is read as extensions.durableTask.hubName (host.json line 2), its path since version 2 of the host.`
	if len(cfg.Notices) != 7 || cfg.Notices[0] != want {
		t.Errorf("notices are %q", cfg.Notices)
	}
	if last := cfg.Notices[6]; !strings.Contains(last, "durableTask.partitonCount is not a known setting") || !strings.Contains(last, "partitionCount?") {
		t.Errorf("notices are %q", cfg.Notices)
	}
	if cfg := configured(t, `{"durableTask": {}}`); cfg.Storage.TaskHub != "DurableFunctionsHub" {
		t.Errorf("the hub is %s by default, want DurableFunctionsHub", cfg.Storage.TaskHub)
	}
	both := configured(t, `{"durableTask": {"hubName": "Flat"}, "extensions": {"durableTask": {"hubName": "Nested"}}}`)
	if both.Storage.TaskHub != "Nested" || len(both.Notices) != 1 {
		t.Errorf("hub %s, notices %q, want Nested and one notice", both.Storage.TaskHub, both.Notices)
	}
}

// Each name in the flat schema has the effect of its setting.
func TestSettings_EachFlatNameHasItsEffect(t *testing.T) {
	t.Parallel()
	flat := map[string]string{}
	for _, row := range settingRows() {
		if row.FlatName != "" && row.NeverEffective == "" {
			flat[row.Path] = row.FlatName
		}
	}
	for _, c := range settingCases() {
		name := flat[c.path]
		if name == "" {
			continue
		}
		delete(flat, c.path)
		for value, want := range c.good {
			if value == "null" || strings.HasPrefix(name, "hub") && strings.Contains(value, "null") {
				continue // counts as missing
			}
			cfg := configured(t, `{"durableTask": {"`+name+`": `+value+`}}`, settingEnvironment...)
			if got := c.get(cfg); got != want || cfg.Problem != nil {
				t.Errorf("durableTask.%s = %s: got %v, %v, want %v", name, value, got, cfg.Problem, want)
			}
		}
	}
	for path, name := range flat {
		t.Errorf("nothing tests %s, the flat name of %s", name, path)
	}
}

// AzureStorageDurabilityProviderFactory.cs warns and continues.
func TestSettings_ABatchLargerThanTheBufferGetsANotice(t *testing.T) {
	t.Parallel()
	cfg := configured(t, durableTaskJSON(`"storageProvider": {"controlQueueBufferThreshold": 10}`))
	want := []string{"controlQueueBatchSize is 32; it has no effect above controlQueueBufferThreshold, which is 10."}
	if diff := cmp.Diff(want, cfg.Notices); diff != "" || cfg.Problem != nil {
		t.Errorf("problem %v, notices (-want +got):\n%s", cfg.Problem, diff)
	}
}

// See DefaultPlatformInformation.cs, IsInConsumptionPlan; AzureStorageDurabilityProviderFactory.cs.
func TestSettings_DefaultsFollowThePlan(t *testing.T) {
	t.Parallel()
	consumption := []any{10, 5, 128, time.Duration(0)}
	for _, tt := range []struct {
		name string
		env  settings.Environment
		want []any
	}{
		{"none", settings.Environment{}, []any{0, 0, 0, time.Duration(0)}},
		{"a container that is not of Azure", settings.Environment{ContainerName: "c"}, []any{0, 0, 0, time.Duration(0)}},
		{"Premium", settings.Environment{SiteName: "site", SKU: "ElasticPremium", ContainerName: "c", InstanceID: "i"}, []any{0, 0, 0, time.Duration(0)}},
		{"Consumption on Windows", settings.Environment{SiteName: "site", SKU: "Dynamic", InstanceID: "i"}, consumption},
		{"Consumption on Linux", settings.Environment{SiteName: "site", ContainerName: "c"}, consumption},
		{"Flex Consumption", settings.Environment{SiteName: "site", SKU: "FlexConsumption", ContainerName: "c"}, []any{10, 5, 128, time.Second}},
	} {
		cfg := configure(tt.env, settings.New(), []string{storageSetting})
		got := []any{cfg.Worker.MaxConcurrentActivities, cfg.Worker.MaxConcurrentOrchestrators, cfg.Storage.ControlQueueBufferThreshold, cfg.Storage.MaxQueuePollingInterval}
		if diff := cmp.Diff(tt.want, got); diff != "" || cfg.Problem != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, cfg.Problem, diff)
		}
	}
	found, _ := settings.ParseHostJSON([]byte(durableTaskJSON(`"maxConcurrentActivityFunctions": 77`)))
	if cfg := configure(settings.Environment{SiteName: "site", SKU: "Dynamic"}, found, []string{storageSetting}); cfg.Worker.MaxConcurrentActivities != 77 {
		t.Errorf("%d activities, want the 77 that host.json says", cfg.Worker.MaxConcurrentActivities)
	}
}

func TestEffective_HasValuesAndSourcesWithoutSecrets(t *testing.T) {
	t.Parallel()
	found, err := settings.ParseHostJSON([]byte(durableTaskJSON(`"hubName": "MyHub", "defaultVersion": "AccountKey=c2VjcmV0"`)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(settings.Environment{SiteName: "site", SKU: "FlexConsumption"}, found,
		[]string{storageSetting, "AzureFunctionsJobHost__extensions__durableTask__storageProvider__partitionCount=7"})
	got := map[string]settings.EffectiveSetting{}
	for _, e := range cfg.effective() {
		got[settings.LastName(e.Name)] = e
	}
	for _, want := range []settings.EffectiveSetting{
		{Name: "extensions.http.routePrefix", Value: "api", Source: "default"},
		{Name: "extensions.durableTask.hubName", Value: "MyHub", Source: "host.json line 1"},
		{Name: "extensions.durableTask.defaultVersion", Value: "AccountKey=***", Source: "host.json line 1"},
		{Name: "extensions.durableTask.versionMatchStrategy", Value: "CurrentOrOlder", Source: "default"},
		{Name: "extensions.durableTask.extendedSessionIdleTimeoutInSeconds", Value: 30, Source: "default"},
		{Name: "extensions.durableTask.storageProvider.maxQueuePollingInterval", Value: "00:00:01", Source: "default on the Flex Consumption plan"},
		{
			Name: "extensions.durableTask.storageProvider.partitionCount", Value: 7,
			Source: "environment variable AzureFunctionsJobHost__extensions__durableTask__storageProvider__partitionCount",
		},
	} {
		if diff := cmp.Diff(want, got[settings.LastName(want.Name)]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	bad := configured(t, durableTaskJSON(`"hubName": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0"`))
	if bad.Problem == nil || strings.Contains(bad.Problem.Error(), "c2VjcmV0") || !strings.Contains(bad.Problem.Error(), "AccountKey=***") {
		t.Errorf("the problem is %v, want one that masks the key", bad.Problem)
	}
}

// The log shows only changed settings, because a hundred defaults would hide them.
func TestConfiguration_LogHasChangedSettingsAtInfoAndAllAtDebug(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		members string
		want    []string
	}{
		{"", nil},
		{`"maxConcurrentActivityFunctions": 7, "storageProvider": {"partitionCount": 4, "maxQueuePollingInterval": "00:00:01"}`, []string{
			"extensions.durableTask.maxConcurrentActivityFunctions=7", "extensions.durableTask.storageProvider.maxQueuePollingInterval=00:00:01",
		}},
	} {
		var log bytes.Buffer
		cfg := configured(t, durableTaskJSON(tt.members))
		cfg.Logger = NewLogger(&log, slog.LevelDebug)
		New(App{}, cfg).logConfiguration()
		var got []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "event=ExtensionConfiguration") {
				got = append(got, strings.Fields(line[strings.Index(line, "event="):])[1:]...)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("{%s} (-want +got):\n%s", tt.members, diff)
		}
		if all := strings.Count(log.String(), "msg=setting name="); all != len(cfg.effective()) {
			t.Errorf("{%s}: %d settings at debug, want %d", tt.members, all, len(cfg.effective()))
		}
	}
}
