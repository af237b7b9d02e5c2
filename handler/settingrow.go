package handler

import "strings"

// Paths in host.json of the objects that hold settings.
const (
	durableTaskPath = "extensions.durableTask"
	flatPath        = "durableTask" // in version 1 of the host
)

// A settingRowOf is one known setting of host.json; C is the configuration that it is
// read into. The reader, the JSON schema and the effective configuration are made of rows.
type settingRowOf[C any] struct {
	// path is where the setting stands, below extensions.durableTask unless
	// absolute is true, spelled as the extension's documentation does.
	path     string
	absolute bool

	// older are names that it had before, in the same object. flat is its name
	// right below a durableTask at the top of the file, the shape of version 1 of
	// the host (Options/DurableTaskOptions.cs of the extension's version 1).
	older []string
	flat  string

	// values says what it may be, and puts it into a Config.
	values settingValues[C]

	// check, if it is not nil, refuses values that are of the right kind, once
	// they are in the Config.
	check func(cfg *C, path string, s setting) error

	// initial is the default in words, as Markdown. onPlan are the defaults of
	// plans where there are others.
	initial string
	onPlan  map[plan]string

	// get returns what the setting is in a Config: a string, bool, int,
	// time.Duration or fmt.Stringer.
	get func(cfg *C) any

	// does says what turning it does. It is a phrase in Markdown.
	does string

	// inert says why the setting has no effect here. It is empty for those that
	// have one.
	inert string
}

// fullPath returns where the setting stands in host.json.
func (row *settingRowOf[C]) fullPath() string {
	if row.absolute {
		return row.path
	}
	return durableTaskPath + "." + row.path
}

// places returns the paths at which a row's setting may stand, the one that
// counts first.
func (row *settingRowOf[C]) places() []string {
	path := row.fullPath()
	places := []string{path}
	for _, name := range row.older {
		places = append(places, path[:strings.LastIndexByte(path, '.')+1]+name)
	}
	if row.flat != "" {
		places = append(places, flatPath+"."+row.flat)
	}
	return places
}

// onPlanOf returns the default on a plan, "" if it is that of all. Flex
// Consumption has those of Consumption where it has none of its own
// (WebJobs.Extensions.DurableTask/AzureStorageDurabilityProviderFactory.cs).
func (row *settingRowOf[C]) onPlanOf(p plan) string {
	if text := row.onPlan[p]; text != "" || p != planFlex {
		return text
	}
	return row.onPlan[planConsumption]
}
