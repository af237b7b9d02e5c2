package durablecheck

// IsStandard is isStandard.
var IsStandard = isStandard

// ForbiddenNames returns the patterns of forbidden names, by package path.
func ForbiddenNames() map[string][]string {
	names := map[string][]string{}
	for path, entries := range forbidden {
		for _, e := range entries {
			names[path] = append(names[path], e.names)
		}
	}
	return names
}

// Matches is matches.
var Matches = matches

// Rules returns the names of the rules.
func Rules() []string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = string(r)
	}
	return names
}
