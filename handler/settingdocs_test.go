package handler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// settingsTable returns the documentation's table of the settings with an effect or, if inert is true,
// of the settings without one.
func settingsTable(inert bool) string {
	var out strings.Builder
	if inert {
		out.WriteString("| Setting | Effect in the extension | Reason for no effect here |\n|---|---|---|\n")
	} else {
		out.WriteString("| Setting | Default | Values | Effect |\n|---|---|---|---|\n")
	}
	for _, row := range settingRows() {
		name := "`" + row.Path + "`"
		switch {
		case (row.NeverEffective != "") != inert:
		case inert:
			fmt.Fprintf(&out, "| %s | %s | %s |\n", name, settings.Sentence(row.Description), settings.Sentence(row.NeverEffective))
		default:
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", name, defaultsOf(&row), row.Values.Allowed(), settings.Sentence(row.Description+aliasesOf(&row)))
		}
	}
	return out.String()
}

// storesTable is the table of the settings that apply to some stores only.
func storesTable() string {
	var stores []string
	paths := map[string][]string{}
	for _, row := range settingRows() {
		if row.NeverEffective != "" || storesOf(row.Path) == nil {
			continue
		}
		names := storeNames(storesOf(row.Path))
		if paths[names] == nil {
			stores = append(stores, names)
		}
		paths[names] = append(paths[names], "`"+row.Path+"`")
	}
	var out strings.Builder
	out.WriteString("| Types of hubs | Settings |\n|---|---|\n")
	for _, names := range stores {
		fmt.Fprintf(&out, "| %s | %s |\n", names, strings.Join(paths[names], ", "))
	}
	return out.String()
}

func storeNames(stores []StorageType) string {
	var names []string
	for _, s := range stores {
		names = append(names, "`"+s.String()+"`")
	}
	return strings.Join(names, ", ")
}

// defaultsOf describes the default, also on hosting plans with their own default.
func defaultsOf(row *settingRow) string {
	out := row.Default
	if text := row.PlanDefaults[settings.PlanConsumption]; text != "" {
		out += "; on Consumption plans `" + text + "`"
	}
	if text := row.PlanDefaults[settings.PlanFlex]; text != "" {
		out += "; on Flex Consumption `" + text + "`"
	}
	return out
}

// aliasesOf lists the older names of a setting.
func aliasesOf(row *settingRow) string {
	if len(row.FormerNames) == 0 {
		return ""
	}
	return ". `" + strings.Join(row.FormerNames, "`, `") + "` is an older name of it"
}

// flatNames returns the sorted names of settings in the flat schema.
func flatNames() []string {
	var names []string
	for _, row := range settingRows() {
		if row.FlatName != "" {
			names = append(names, row.FlatName)
		}
	}
	slices.Sort(names)
	return names
}
