package handler

import (
	"fmt"
	"slices"
	"strings"
)

// settingsTable returns the README's table of the settings that have an effect
// or, if inert is true, of those that have none.
func settingsTable(inert bool) string {
	var out strings.Builder
	if inert {
		out.WriteString("| Setting | What it does in the extension | Why it has no effect here |\n|---|---|---|\n")
	} else {
		out.WriteString("| Setting | Default | Values | What it does |\n|---|---|---|---|\n")
	}
	for _, row := range settingRows() {
		name := "`" + row.path + "`"
		switch {
		case (row.inert != "") != inert:
		case inert:
			fmt.Fprintf(&out, "| %s | %s | %s |\n", name, sentence(row.does), sentence(row.inert))
		default:
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", name, defaultsOf(&row), row.values.allowed(), sentence(row.does+aliasesOf(&row)))
		}
	}
	return out.String()
}

// defaultsOf returns the default in words, those of plans too.
func defaultsOf(row *settingRow) string {
	out := row.initial
	if text := row.onPlan[planConsumption]; text != "" {
		out += "; on Consumption plans `" + text + "`"
	}
	if text := row.onPlan[planFlex]; text != "" {
		out += "; on Flex Consumption `" + text + "`"
	}
	return out
}

// aliasesOf names the other names of a setting.
func aliasesOf(row *settingRow) string {
	if len(row.older) == 0 {
		return ""
	}
	return ". `" + strings.Join(row.older, "`, `") + "` is an older name of it"
}

// flatNames returns the names that settings have in the flat shape, in order.
func flatNames() []string {
	var names []string
	for _, row := range settingRows() {
		if row.flat != "" {
			names = append(names, row.flat)
		}
	}
	slices.Sort(names)
	return names
}
