package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

// Environment holds the environment variables with upper-case names, which are the only ones that
// envconfig finds. Fields have no defaults, so an unset variable is "". All fields are strings, because
// envconfig stops at the first value that it cannot convert.
type Environment struct {
	HandlerPort   string `envconfig:"FUNCTIONS_CUSTOMHANDLER_PORT"`
	Port          string `envconfig:"PORT"`
	AppRoot       string `envconfig:"FUNCTIONS_APP_ROOT_PATH"`
	SiteName      string `envconfig:"WEBSITE_SITE_NAME"`
	SlotName      string `envconfig:"WEBSITE_SLOT_NAME"`
	Hostname      string `envconfig:"WEBSITE_HOSTNAME"`
	SKU           string `envconfig:"WEBSITE_SKU"`
	InstanceID    string `envconfig:"WEBSITE_INSTANCE_ID"`
	ContainerName string `envconfig:"CONTAINER_NAME"`
	Address       string `envconfig:"DURABLE_ADDRESS"`
	Key           string `envconfig:"DURABLE_KEY"`
	ReadKey       string `envconfig:"DURABLE_READ_KEY"`
	TraceURL      string `envconfig:"DURABLE_TRACE_URL"`
	LogLevel      string `envconfig:"DURABLE_LOG_LEVEL"`
	LogFormat     string `envconfig:"DURABLE_LOG_FORMAT"`
}

// ReadEnvironment reads the environment variables of the process.
func ReadEnvironment() (Environment, error) {
	var env Environment
	err := envconfig.Process("", &env)
	return env, err
}

// BehindHost reports whether the Functions host started this program.
func (e Environment) BehindHost() bool { return e.HandlerPort != "" }

// ListenHost returns the address to listen on. It is a loopback address unless a standalone program has
// DURABLE_ADDRESS.
func (e Environment) ListenHost() string {
	if e.BehindHost() || e.Address == "" {
		return "127.0.0.1"
	}
	return strings.Trim(e.Address, "[]")
}

// ListenPort returns the port to listen on: the host's port, or PORT, or byDefault. A standalone
// program may set PORT to 0 for any free port.
func (e Environment) ListenPort(byDefault int) (int, error) {
	name, text, lowest := "PORT", e.Port, 0
	switch {
	case e.BehindHost():
		name, text, lowest = "FUNCTIONS_CUSTOMHANDLER_PORT", e.HandlerPort, 1
	case text == "":
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > 65535 {
		return 0, fmt.Errorf("environment variable %s is %q; want a port number from %d to 65535", name, text, lowest)
	}
	return n, nil
}

// Plan detects the hosting plan (WebJobs.Extensions.DurableTask/DefaultPlatformInformation.cs,
// IsInConsumptionPlan). Unlike the extension it considers CONTAINER_NAME only together with a site
// name, because other platforms set a variable of that name, too.
func (e Environment) Plan() Plan {
	switch {
	case strings.EqualFold(e.SKU, "FlexConsumption"):
		return PlanFlex
	case strings.EqualFold(e.SKU, "Dynamic"), e.SiteName != "" && e.ContainerName != "" && e.InstanceID == "":
		return PlanConsumption
	}
	return planOther
}

// A Plan is the hosting plan of an app. It distinguishes only plans with different defaults.
type Plan int

// Hosting plans.
const (
	planOther Plan = iota // Premium, Dedicated, a container, or outside of Azure
	PlanConsumption
	PlanFlex
)

// String returns Azure's name for the plan.
func (p Plan) String() string {
	switch p {
	case PlanConsumption:
		return "Consumption"
	case PlanFlex:
		return "Flex Consumption"
	case planOther:
	}
	return "other"
}

// Variables holds environment variables as settings of the app. As in .NET configuration, names are not
// case-sensitive, and ":" is equivalent to "__".
type Variables struct {
	exact map[string]string
	lower map[string]string
}

// NewVariables returns the Variables in environ, which has the form of [os.Environ]. If names differ
// only in case, an exact match applies, otherwise the last one in sorted order.
func NewVariables(environ []string) Variables {
	v := Variables{exact: map[string]string{}, lower: map[string]string{}}
	sorted := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		v.exact[name] = value
		key := settingKey(name)
		if name >= sorted[key] {
			v.lower[key], sorted[key] = value, name
		}
	}
	return v
}

func settingKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, ":", "__")) }

// Lookup returns the variable with the given name. An empty variable counts as not set.
func (v Variables) Lookup(name string) (string, bool) {
	if value := v.exact[name]; value != "" {
		return value, true
	}
	value := v.lower[settingKey(name)]
	return value, value != ""
}

// DeployedEnvironment returns the environment of a standalone program that opens the task hub of a deployed app. environ
// is the environment on this machine, local has the content of local.settings.json, and app has the settings of the
// deployed app. The result omits the variables in environ that select the folder, the site, the storage account and the
// task hub of the app on this machine. It has an empty variable for each other setting in local, so that
// [ApplyLocalSettings] sets none, except for the settings of the Azure SDK: the program signs in as on this machine.
func DeployedEnvironment(environ []string, local [][2]string, app []string) []string {
	var kept, empty []string
	for _, variable := range environ {
		if !isOfLocalApp(variable) {
			kept = append(kept, variable)
		}
	}
	for _, v := range local {
		if !strings.HasPrefix(settingKey(v[0]), "azure_") {
			empty = append(empty, v[0]+"=")
		}
	}
	return slices.Concat(empty, kept, app) // the last of equal names applies
}

// isOfLocalApp reports whether DeployedEnvironment omits an environment variable.
func isOfLocalApp(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	key := settingKey(name)
	for _, prefix := range connectionStringPrefixes {
		key = strings.TrimPrefix(key, strings.ToLower(prefix))
	}
	for _, prefix := range []string{"azurewebjobsstorage__", "azurefunctionsjobhost__", "functions_", "website_"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return key == "azurewebjobsstorage" || key == "azurewebjobsscriptroot"
}

// connectionStringPrefixes are the prefixes of the variables with connection strings, which local.settings.json and
// Azure store separately from settings.
var connectionStringPrefixes = []string{"ConnectionStrings__", "CUSTOMCONNSTR_"}

// Connection returns the connection string or the setting with the given name. It looks among the
// connection strings first and then among the settings (WebJobs.Host/ConfigurationExtensions.cs,
// GetConnectionStringOrSetting).
func (v Variables) Connection(name string) (string, bool) {
	for _, prefix := range connectionStringPrefixes {
		if value, ok := v.Lookup(prefix + name); ok {
			return value, true
		}
	}
	return v.Lookup(name)
}

// errUnclosed reports a percent sign without a closing one.
var errUnclosed = errors.New(`has a "%" without a closing "%"`)

// errNotAName reports that the text between two percent signs is not a name. The error omits the text:
// it may be part of a signature in a URL.
var errNotAName = errors.New("contains text between two percent signs that is not the name of a setting")

// substitute replaces each %NAME% in text with the setting of that name
// (WebJobs.Host/Config/NameResolverExtensions.cs, ResolveWholeString).
func (v Variables) substitute(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "%")
		if !closed {
			return "", errUnclosed
		}
		if !settingName.MatchString(name) {
			return "", errNotAName
		}
		value, ok := v.Lookup(name)
		if !ok {
			return "", fmt.Errorf("names the setting %q, which is not set", name)
		}
		out.WriteString(value)
		text = after
	}
}

// SameConnection reports whether two connection names refer to the same setting. "Storage" is short for
// "AzureWebJobsStorage".
func SameConnection(a, b string) bool {
	short := func(name string) string { return strings.TrimPrefix(strings.ToLower(name), "azurewebjobs") }
	return short(a) == short(b)
}
