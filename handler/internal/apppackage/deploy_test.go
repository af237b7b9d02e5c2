package apppackage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakeAz answers calls of the Azure CLI and records them.
type fakeAz struct {
	calls    []string
	current  string // the URL of the package that the app runs from
	replaced string // rows of the settings that replace values of host.json
	fail     string // the prefix of the call that fails
}

func (f *fakeAz) run(_ context.Context, args ...string) (string, error) {
	call := strings.Join(args, " ")
	f.calls = append(f.calls, call)
	switch {
	case f.fail != "" && strings.HasPrefix(call, f.fail):
		return "", errors.New("refused")
	case strings.Contains(call, "AzureFunctionsJobHost__"):
		return f.replaced, nil
	case strings.HasPrefix(call, "functionapp list") && f.current != "":
		return "other\r\nShop", nil
	case strings.HasPrefix(call, "functionapp list"):
		return "other", nil
	case strings.HasPrefix(call, "functionapp config"):
		return f.current, nil
	case strings.HasPrefix(call, "functionapp show"):
		return "/subscriptions/s/sites/shop", nil
	case strings.Contains(call, "outputs.account"):
		return "stshop", nil
	case strings.Contains(call, "outputs.host"):
		return "shop.azurewebsites.net", nil
	}
	return "", nil
}

func newDeployment(t *testing.T, az *fakeAz) (*Deployment, *bytes.Buffer) {
	t.Helper()
	zip := filepath.Join(t.TempDir(), "app.zip")
	if err := os.WriteFile(zip, []byte("zip"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	return &Deployment{ResourceGroup: "group", Name: "shop", Parameters: []string{"size=EP2"}, Template: "infra/main.bicep", Zip: zip, Az: az.run, Out: &out}, &out
}

func TestDeployment_UploadsThePackageAndRunsTheAppFromIt(t *testing.T) {
	az := &fakeAz{}
	d, out := newDeployment(t, az)
	d.Verify = func(context.Context, []string) error { t.Error("a new app has no instances"); return nil }
	if err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`^functionapp list --resource-group group --query \[\]\.name --output tsv$`,
		`^deployment group create --resource-group group --name shop --template-file infra/main.bicep .*name=shop package= size=EP2$`,
		`outputs\.account`,
		`^storage blob upload .*--account-name stshop .*--name shop-[0-9a-f]{16}\.zip`,
		`^deployment group create .*package=shop-[0-9a-f]{16}\.zip size=EP2$`,
		`^functionapp show`,
		`^rest --method post .*--uri /subscriptions/s/sites/shop/syncfunctiontriggers`,
		`outputs\.host`,
	}
	if len(az.calls) != len(want) {
		t.Fatalf("%d calls, want %d:\n%s", len(az.calls), len(want), strings.Join(az.calls, "\n"))
	}
	for i, call := range az.calls {
		if !regexp.MustCompile(want[i]).MatchString(call) {
			t.Errorf("call %d is %q, want %s", i, call, want[i])
		}
	}
	if !strings.Contains(out.String(), "https://shop.azurewebsites.net/api") {
		t.Errorf("it says %s", out)
	}
}

func TestDeployment_KeepsThePackageIfInstancesDoNotFit(t *testing.T) {
	az := &fakeAz{
		current:  "https://stshop.blob.core.windows.net/packages/shop-old.zip",
		replaced: "AzureFunctionsJobHost__a__type\tpartitionLog\r\nAzureFunctionsJobHost__b\tx=y",
	}
	d, _ := newDeployment(t, az)
	var env []string
	d.Verify = func(_ context.Context, e []string) error { env = e; return errors.New("1 of 3 instances") }
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of 3 instances") {
		t.Errorf("deployed: %v", err)
	}
	const want = "AzureFunctionsJobHost__a__type=partitionLog AzureFunctionsJobHost__b=x=y AzureWebJobsStorage__accountName=stshop WEBSITE_SITE_NAME=shop"
	if strings.Join(env, " ") != want {
		t.Errorf("verified with %q", env)
	}
	all := strings.Join(az.calls, "\n")
	if !strings.Contains(all, "package=shop-old.zip") || strings.Contains(all, "upload") {
		t.Errorf("the calls are\n%s", all)
	}
}

// The template cannot produce these values, so the first creation would take away the package that the app runs from.
func TestDeployment_RefusesAPackageThatAnotherToolHasSet(t *testing.T) {
	for _, current := range []string{
		"1", "https://stshop.blob.core.windows.net/scm-releases/scm-latest-shop.zip?sv=2023&sig=secret",
		"https://stshop.blob.core.windows.net/packages/shop-old.zip?sv=2023&sig=secret", "https://stshop.blob.core.windows.net/packages/a/b.zip",
		"https://stshop.blob.core.windows.net/packages/", "/packages/shop-old.zip", ":",
	} {
		az := &fakeAz{current: current}
		d, _ := newDeployment(t, az)
		err := d.Run(t.Context())
		value, _, _ := strings.Cut(current, "?")
		if err == nil || !strings.Contains(err.Error(), "WEBSITE_RUN_FROM_PACKAGE="+value) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error is %v", current, err)
		}
		if all := strings.Join(az.calls, "\n"); strings.Contains(all, "deployment group create") {
			t.Errorf("%s: the calls are\n%s", current, all)
		}
	}
}

func TestDeployment_StopsAtTheFirstCallThatFails(t *testing.T) {
	for _, fail := range []string{"functionapp list", "functionapp config", "deployment group create", "deployment group show", "storage blob upload", "functionapp show", "rest"} {
		az := &fakeAz{fail: fail, current: "https://stshop.blob.core.windows.net/packages/shop-old.zip"}
		d, _ := newDeployment(t, az)
		if err := d.Run(t.Context()); err == nil {
			t.Errorf("%s failed, and Run returned no error", fail)
		}
		if last := az.calls[len(az.calls)-1]; !strings.HasPrefix(last, fail) {
			t.Errorf("after %s failed, the last call was %s", fail, last)
		}
	}
	d, _ := newDeployment(t, &fakeAz{})
	d.Name = "shop; rm"
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "letters, digits and hyphens") {
		t.Errorf("a name that is not valid: %v", err)
	}
}
