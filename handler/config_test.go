package handler

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

const storageSetting = "AzureWebJobsStorage=UseDevelopmentStorage=true"

// configured returns the Config for a host.json and environment variables, plus a storage connection.
func configured(t *testing.T, hostJSON string, environ ...string) Config {
	t.Helper()
	found, err := settings.ParseHostJSON([]byte(hostJSON))
	if err != nil {
		t.Fatal(err)
	}
	return configure(settings.Environment{}, found, append(environ, storageSetting))
}

// durableTaskJSON returns a host.json with members of extensions.durableTask.
func durableTaskJSON(members string) string {
	return `{"version": "2.0", "extensions": {"durableTask": {` + members + `}}}`
}

// nested returns a host.json with one setting.
func nested(path, value string) string {
	if object, name, ok := strings.Cut(path, "."); ok {
		return durableTaskJSON(`"` + object + `": {"` + name + `": ` + value + `}`)
	}
	return durableTaskJSON(`"` + path + `": ` + value)
}

var settingEnvironment = []string{
	"HUB=HubOfSetting", "BADHUB=-", "WHICH=Other", "AzureWebJobsOther=UseDevelopmentStorage=true", "Broken=nonsense",
}

func TestConfig_EverySettingHasItsDefaultAndAcceptsValidValues(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		if got := tt.get(configured(t, "{}")); got != tt.byDefault {
			t.Errorf("%s is %v by default, want %v", tt.path, got, tt.byDefault)
		}
		for value, want := range tt.good {
			cfg := configured(t, nested(tt.path, value), settingEnvironment...)
			if cfg.Problem != nil || len(cfg.Notices) > 0 {
				t.Errorf("%s = %s: %v, %v", tt.path, value, cfg.Problem, cfg.Notices)
			}
			if got := tt.get(cfg); got != want {
				t.Errorf("%s = %s: got %v, want %v", tt.path, value, got, want)
			}
			// Names are not case-sensitive.
			if got := tt.get(configured(t, nested(strings.ToLower(tt.path), value), settingEnvironment...)); tt.path != "storageProvider" && !strings.Contains(tt.path, ".") && got != want {
				t.Errorf("%s = %s: got %v, want %v", strings.ToLower(tt.path), value, got, want)
			}
		}
	}
}

func TestConfig_ErrorOfAnInvalidValueHasSettingValueRangeAndLine(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		for value, says := range tt.bad {
			cfg := configured(t, "\n\n"+nested(tt.path, value), settingEnvironment...)
			if cfg.Problem == nil {
				t.Errorf("%s = %s: no error, want %s", tt.path, value, says)
				continue
			}
			got := cfg.Problem.Error()
			if !strings.Contains(got, says) {
				t.Errorf("%s = %s: %s, want %s", tt.path, value, got, says)
			}
			missing := strings.HasPrefix(says, "no storage") || strings.HasPrefix(says, "setting ")
			if !missing && (!strings.HasPrefix(got, "extensions.durableTask."+tt.path+" ") || !strings.HasSuffix(got, " (host.json line 3)")) {
				t.Errorf("%s = %s: %s, want its path and line", tt.path, value, got)
			}
		}
	}
}

func TestConfig_VariableOverridesHostJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range settingCases() {
		if tt.overridden == "" {
			continue
		}
		name := "AzureFunctionsJobHost__extensions__durableTask__" + strings.ReplaceAll(tt.path, ".", "__")
		for value := range tt.bad {
			cfg := configured(t, nested(tt.path, value), append(settingEnvironment, name+"="+tt.overridden)...)
			// A variable with the name of an object in the file has no effect.
			if got := tt.get(cfg); (got != tt.override || cfg.Problem != nil) && value != "{}" && value != "[]" {
				t.Errorf("%s = %s with %s=%s: got %v, %v, want %v", tt.path, value, name, tt.overridden, got, cfg.Problem, tt.override)
			}
		}
	}
	cfg := configured(t, "{}", "azurefunctionsjobhost__EXTENSIONS__durabletask__storageprovider__partitioncount=40")
	want := "extensions.durableTask.storageProvider.partitionCount is \"40\"; want a whole number from 1 to 16 " +
		"(environment variable azurefunctionsjobhost__EXTENSIONS__durabletask__storageprovider__partitioncount)"
	if cfg.Problem == nil || cfg.Problem.Error() != want {
		t.Errorf("problem is %v, want %s", cfg.Problem, want)
	}
}

func TestConfig_ReportsAllProblemsTogether(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{
  "version": "1.0",
  "extensions": {
    "http": {"routePrefix": "a*"},
    "durableTask": {
      "hubName": "-",
      "storageProvider": "none"
    }
  }
}`)
	want := `version is "1.0"; want "2.0" (host.json line 2)
extensions.http.routePrefix is "a*"; want segments of letters, digits and . _ ~ -, other than . and .. (host.json line 4)
extensions.durableTask.hubName is "-"; want 3 to 45 letters and digits, the first a letter (host.json line 6)
extensions.durableTask.storageProvider is "none"; want an object (host.json line 7)`
	if cfg.Problem == nil || cfg.Problem.Error() != want {
		t.Errorf("problem is\n%v\nwant\n%s", cfg.Problem, want)
	}
}

func TestConfig_ExtensionsMustBeAnObject(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{"extensions": "x"}`)
	if want := `extensions is "x"; want an object (host.json line 1)`; cfg.Problem == nil || cfg.Problem.Error() != want {
		t.Errorf("problem is %v, want %s", cfg.Problem, want)
	}
}

func TestConfig_ErrorOfAMissingConnectionListsTheSettings(t *testing.T) {
	t.Parallel()
	found, err := settings.ParseHostJSON([]byte(durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`)))
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(settings.Environment{}, found, nil)
	if cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), "AzureWebJobsStorage") ||
		!strings.HasPrefix(cfg.Problem.Error(), connectionNamePath+": ") {
		t.Errorf("problem is %v, want one that names AzureWebJobsStorage", cfg.Problem)
	}
}

func TestConfig_UnknownSettingsAreIgnoredWithOneNotice(t *testing.T) {
	t.Parallel()
	cfg := configured(t, `{
  "durableTask": {"hubName": "Misplaced"},
  "unrelated": {"a": 1},
  "extensions": {"durableTask": {
    "HUBNAME": "MyHub",
    "localRpcEndpointEnabled": true,
    "hubbName": "Typo", "httpSettings": {"useForwardedHost": true},
    "partitionCount": 3, "storageProvider": {"PartitionCount": 2, "fetchLargeMessagesAutomatically": false,
      "partitions": 3, "zzz": 1}
  },
  "durableTasks": {}
  }
}`, "AzureFunctionsJobHost__extensions__durableTask__tracing__traceReplayEvents=true")
	if cfg.Problem != nil || cfg.Storage.TaskHub != "MyHub" || cfg.Storage.PartitionCount != 2 {
		t.Errorf("hub %s, %d partitions, %v", cfg.Storage.TaskHub, cfg.Storage.PartitionCount, cfg.Problem)
	}
	want := `The setting durableTask.hubName has no effect (host.json line 2): extensions.durableTask.hubName is set.
The setting extensions.durableTask.storageProvider.fetchLargeMessagesAutomatically has no effect (host.json line 8): payloads are always read on request.
The setting extensions.durableTask.tracing.traceReplayEvents has no effect (environment variable AzureFunctionsJobHost__extensions__durableTask__tracing__traceReplayEvents): replays are not logged.
The setting extensions.durableTask.localRpcEndpointEnabled has no effect (host.json line 6): the app is the worker and has its own.
The setting extensions.durableTask.hubbName is not a known setting and has no effect (host.json line 7). Did you mean extensions.durableTask.hubName?
The setting extensions.durableTask.partitionCount is not a known setting and has no effect (host.json line 8). Did you mean extensions.durableTask.storageProvider.partitionCount?
The setting extensions.durableTask.storageProvider.partitions is not a known setting and has no effect (host.json line 9). Did you mean extensions.durableTask.storageProvider.partitionCount?
The setting extensions.durableTask.storageProvider.zzz is not a known setting and has no effect (host.json line 9).
The setting extensions.durableTasks is not a known setting and has no effect (host.json line 11). Did you mean extensions.durableTask?`
	if got := strings.Join(cfg.Notices, "\n"); got != want {
		t.Errorf("notices are\n%s\nwant\n%s", got, want)
	}
}

// See DurableTaskOptions.cs, ResolveDefaultHubName; AzureStorageOptions.cs, ValidateHubName with slots.
func TestConfig_DefaultHubNameComesFromTheSite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env     settings.Environment
		file    string
		want    string
		problem bool
	}{
		{settings.Environment{}, "{}", "TestHubName", false},
		{settings.Environment{SiteName: "my-site_2"}, "{}", "mysite2", false},
		{settings.Environment{SiteName: "2fast"}, "{}", "t2fast", false},
		{settings.Environment{SiteName: "my-site"}, durableTaskJSON(`"hubName": "Mine"`), "Mine", false},
		{settings.Environment{SiteName: "site", SlotName: "Production"}, "{}", "site", false},
		{settings.Environment{SiteName: "site", SlotName: "staging"}, "{}", "site", true},
		{settings.Environment{SiteName: "site", SlotName: "staging"}, durableTaskJSON(`"hubName": "Mine"`), "Mine", false},
	} {
		found, err := settings.ParseHostJSON([]byte(tt.file))
		if err != nil {
			t.Fatal(err)
		}
		cfg := configure(tt.env, found, []string{storageSetting})
		if cfg.Storage.TaskHub != tt.want || (cfg.Problem != nil) != tt.problem {
			t.Errorf("%+v, %s: hub is %s, %v, want %s", tt.env, tt.file, cfg.Storage.TaskHub, cfg.Problem, tt.want)
		}
	}
}

func TestConfig_RoutePrefix(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{`"api"`: "api", `""`: "", `"/v1/x/"`: "v1/x", `null`: "api"} {
		cfg := configured(t, `{"extensions": {"http": {"routePrefix": `+value+`}}}`)
		if cfg.RoutePrefix != want || cfg.Problem != nil {
			t.Errorf("%s: prefix is %q, %v, want %q", value, cfg.RoutePrefix, cfg.Problem, want)
		}
	}
}

func TestConfig_InvalidLogLevelIsOnlyANotice(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]slog.Level{"": 0, "Debug": slog.LevelDebug, "Warning": slog.LevelWarn, "error": slog.LevelError} {
		if cfg := configure(settings.Environment{LogLevel: name}, settings.New(), []string{storageSetting}); cfg.LogLevel != want || len(cfg.Notices) > 0 {
			t.Errorf("%q: %v, %v, want %v", name, cfg.LogLevel, cfg.Notices, want)
		}
	}
	cfg := configure(settings.Environment{LogLevel: "loud"}, settings.New(), []string{storageSetting})
	if cfg.Problem != nil || len(cfg.Notices) != 1 {
		t.Errorf("problem %v, notices %v, want one notice", cfg.Problem, cfg.Notices)
	}
}

func TestPort_ComesFromTheHostThenTheOperator(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  settings.Environment
		want int
		err  string
	}{
		{settings.Environment{}, 8080, ""},
		{settings.Environment{Port: "9000"}, 9000, ""},
		{settings.Environment{Port: "0"}, 0, ""},
		{settings.Environment{Port: "9000", HandlerPort: "41000"}, 41000, ""},
		{settings.Environment{Port: "http"}, 0, `environment variable PORT is "http"; want a port number from 0 to 65535`},
		{settings.Environment{HandlerPort: "0"}, 0, `environment variable FUNCTIONS_CUSTOMHANDLER_PORT is "0"; want a port number from 1 to 65535`},
		{settings.Environment{HandlerPort: "70000"}, 0, `environment variable FUNCTIONS_CUSTOMHANDLER_PORT is "70000"; want a port number from 1 to 65535`},
	} {
		got, err := tt.env.ListenPort(DefaultPort)
		if err == nil {
			err = errors.New("")
		}
		if got != tt.want || err.Error() != tt.err {
			t.Errorf("%+v: %d, %v, want %d, %s", tt.env, got, err, tt.want, tt.err)
		}
	}
}

func TestConfig_LegacyPartitionManagerNeedsTheTableTurnedOff(t *testing.T) {
	t.Parallel()
	both := durableTaskJSON(`"storageProvider": {"useLegacyPartitionManagement": true, "useTablePartitionManagement": false}`)
	if cfg := configured(t, both); cfg.Problem != nil || cfg.Storage.PartitionManager != azurestorage.LegacyBlobLeases {
		t.Errorf("%v, %v, want the legacy manager", cfg.Storage.PartitionManager, cfg.Problem)
	}
	if cfg := configured(t, durableTaskJSON(`"appLeaseOptions": {"leaseInterval": "00:00:20"}`)); cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), "RenewInterval") {
		t.Errorf("a lease that ends before it is renewed: %v", cfg.Problem)
	}
}
