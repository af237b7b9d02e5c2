package settings

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// envconfig looks up tags in upper case only. A variable that differs in case must be ignored, and an
// empty variable counts as not set.
func TestProcessEnvironment_ReadsUpperCaseVariables(t *testing.T) {
	for name, value := range map[string]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT": "", "PORT": "9001", "Port": "9002", "FUNCTIONS_APP_ROOT_PATH": "/r", "WEBSITE_SITE_NAME": "s",
		"WEBSITE_SLOT_NAME": "x", "WEBSITE_HOSTNAME": "h", "DURABLE_LOG_LEVEL": "debug",
		"WEBSITE_SKU": "Dynamic", "WEBSITE_INSTANCE_ID": "i", "CONTAINER_NAME": "c", "DURABLE_ADDRESS": "0.0.0.0", "DURABLE_KEY": "k", "DURABLE_READ_KEY": "r", "DURABLE_TRACE_URL": "t",
	} {
		t.Setenv(name, value)
	}
	got, err := ReadEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	want := Environment{Port: "9001", AppRoot: "/r", SiteName: "s", SlotName: "x", Hostname: "h", LogLevel: "debug", SKU: "Dynamic", InstanceID: "i", ContainerName: "c", Address: "0.0.0.0", Key: "k", ReadKey: "r", TraceURL: "t"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
	if got.BehindHost() {
		t.Error("an empty port counts as the host's")
	}
}

func TestVariables_AreFoundInAnyCaseAndWithColons(t *testing.T) {
	t.Parallel()
	v := NewVariables([]string{"AzureWebJobsStorage=exact", "AZUREWEBJOBSSTORAGE=upper", "Other__accountName=acct", "ConnectionStrings:Db=cs", "CUSTOMCONNSTR_Portal=p", "Db=setting", "Empty="})
	for _, tt := range []struct{ name, want string }{
		{"AzureWebJobsStorage", "exact"},
		{"AZUREWEBJOBSSTORAGE", "upper"},
		{"azurewebjobsstorage", "exact"},
		{"other:ACCOUNTNAME", "acct"},
		{"Other__AccountName", "acct"},
		{"Empty", ""},
		{"Nothing", ""},
	} {
		if got, ok := v.Lookup(tt.name); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s is %q, %v, want %q", tt.name, got, ok, tt.want)
		}
	}
	for name, want := range map[string]string{"Db": "cs", "Portal": "p", "AzureWebJobsStorage": "exact", "Nothing": ""} {
		if got, _ := v.Connection(name); got != want {
			t.Errorf("connection %s is %q, want %q", name, got, want)
		}
	}
}

func TestParseLocalSettings_ReadsTheFilesOfCoreTools(t *testing.T) {
	t.Parallel()
	got, err := parseLocalSettings([]byte("\xef\xbb\xbf" + `{
  // comments are fine
  "isEncrypted": false,
  "Values": {"B": "2", "A": "", "Null": null, "Number": 5, "Yes": true},
  "ConnectionStrings": {"Db": "x=y", "Old": {"ConnectionString": "z", "ProviderName": "p"}},
  "Host": {"LocalHttpPort": 7071},
}`))
	if err != nil {
		t.Fatal(err)
	}
	want := [][2]string{{"A", ""}, {"B", "2"}, {"ConnectionStrings:Db", "x=y"}, {"ConnectionStrings:Old", "z"}, {"Number", "5"}, {"Yes", "true"}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got, want:\n%s", diff)
	}
	for text, want := range map[string]string{
		`{"IsEncrypted": true}`:         "is encrypted",
		`{"Values": {"A": {"B": "C"}}}`: `the value of "A" must be a string`,
		`{"Values": {"A=B": "C"}}`:      `"A=B" cannot be an environment variable`,
		`{"Values": {"": "C"}}`:         `"" cannot be an environment variable`,
		`{"Values": {`:                  "the file ends before the end of its object",
	} {
		if _, err := parseLocalSettings([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", text, err, want)
		}
	}
	if vars, err := ReadLocalSettings(t.TempDir()); len(vars) > 0 || err != nil {
		t.Errorf("no file: %v, %v", vars, err)
	}
}

func TestApplyLocalSettings_ExistingVariablesTakePrecedence(t *testing.T) {
	t.Setenv("HANDLER_TEST_EXISTS", "")
	t.Setenv("HANDLER_TEST_NEW", "")
	if err := os.Unsetenv("HANDLER_TEST_NEW"); err != nil {
		t.Fatal(err)
	}
	if err := ApplyLocalSettings([][2]string{{"HANDLER_TEST_EXISTS", "x"}, {"HANDLER_TEST_NEW", "y"}}); err != nil {
		t.Fatal(err)
	}
	if a, b := os.Getenv("HANDLER_TEST_EXISTS"), os.Getenv("HANDLER_TEST_NEW"); a != "" || b != "y" {
		t.Errorf("variables are %q and %q, want \"\" and y", a, b)
	}
}
