package settings

import "strings"

// Paths in host.json of the objects that hold settings.
const (
	DurableTaskPath = "extensions.durableTask"
	FlatPath        = "durableTask" // in version 1 of the host
)

// A Row describes one setting of host.json. C is the type of the configuration that it
// is read into.
type Row[C any] struct {
	// Path is where the setting stands, below extensions.durableTask unless
	// Absolute is true, spelled as in the extension's documentation.
	Path     string
	Absolute bool

	// Older are former names in the same object. Flat is its name
	// right below a durableTask at the top of the file, the shape of version 1 of
	// the host (Options/DurableTaskOptions.cs of the extension's version 1).
	Older []string
	Flat  string

	// Values checks a value and stores it in the configuration.
	Values Values[C]

	// Check, if not nil, refuses values of the right kind after they are stored.
	Check func(cfg *C, path string, s Setting) error

	// Initial is the default in words, as Markdown. OnPlan has the defaults of
	// hosting plans that differ.
	Initial string
	OnPlan  map[Plan]string

	// Get returns the setting's value in a configuration: a string, bool, int,
	// time.Duration or fmt.Stringer.
	Get func(cfg *C) any

	// Does is a phrase in Markdown that says what the setting does.
	Does string

	// Inert says why the setting has no effect here, "" if it has one.
	Inert string
}

// FullPath returns where the setting stands in host.json.
func (row *Row[C]) FullPath() string {
	if row.Absolute {
		return row.Path
	}
	return DurableTaskPath + "." + row.Path
}

// places returns the paths at which the setting may stand, in order of precedence.
func (row *Row[C]) places() []string {
	path := row.FullPath()
	places := []string{path}
	for _, name := range row.Older {
		places = append(places, path[:strings.LastIndexByte(path, '.')+1]+name)
	}
	if row.Flat != "" {
		places = append(places, FlatPath+"."+row.Flat)
	}
	return places
}

// onPlanOf returns the default on a plan, "" if the plan has none of its own. Flex
// Consumption inherits the defaults of Consumption
// (WebJobs.Extensions.DurableTask/AzureStorageDurabilityProviderFactory.cs).
func (row *Row[C]) onPlanOf(p Plan) string {
	if text := row.OnPlan[p]; text != "" || p != PlanFlex {
		return text
	}
	return row.OnPlan[PlanConsumption]
}
