package durablecheck

import (
	"go/types"
	"strings"
)

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

// An OrderClass is the kind of findings that the effect of a standard function on order leads to.
type OrderClass struct{ WithFinding, WithoutFinding bool }

// OrderClasses returns the classes of the functions in the list of standard functions, by path.Name.
func OrderClasses() map[string]OrderClass {
	classes := map[string]OrderClass{}
	for path, entries := range standardOrder {
		for _, e := range entries {
			for name := range strings.FieldsSeq(e.names) {
				quiet := e.effect == dropsOrder || e.effect == sortsInPlace
				classes[path+"."+name] = OrderClass{!quiet, quiet || e.effect == carriesOrder}
			}
		}
	}
	return classes
}

// ListedName returns the path.Name of fn.
func ListedName(fn *types.Func) string { return packagePath(fn.Pkg()) + "." + listedName(fn.Origin()) }

// IsForbidden reports whether fn is in the list of forbidden names.
func IsForbidden(fn *types.Func) bool {
	adv, _ := lookup(fn)
	return adv != nil
}
