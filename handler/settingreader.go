package handler

import (
	"errors"
	"fmt"
	"strings"
)

// A settingReader reads settings as the rows say and gathers what is wrong with
// them, so that an operator is told everything at once.
type settingReader[C any] struct {
	found    settings
	vars     variables
	plan     plan
	known    map[string]bool   // paths that there may be a setting or object at, in lower case
	objects  []string          // those of objects, in the order of the rows
	sources  map[string]string // where settings come from, by the full path of their row
	problems []error
	notices  []string
}

func newSettingReader[C any](found settings, vars variables, p plan) *settingReader[C] {
	return &settingReader[C]{found: found, vars: vars, plan: p, known: map[string]bool{}, sources: map[string]string{}}
}

func (r *settingReader[C]) problem(err error) {
	if err != nil {
		r.problems = append(r.problems, err)
	}
}

func (r *settingReader[C]) notice(format string, args ...any) {
	r.notices = append(r.notices, fmt.Sprintf(format, args...))
}

// read reads all settings into cfg.
func (r *settingReader[C]) read(rows []settingRowOf[C], cfg *C) {
	r.objects = []string{flatPath}
	if s, ok := r.found.lookup("extensions"); ok && s.kind != kindObject {
		r.problem(s.wrong("extensions", "an object"))
	}
	for i := range rows {
		r.objectsOf(&rows[i])
		r.row(&rows[i], cfg)
	}
	r.unknown(rows)
}

// objectsOf checks that what stands above a row's setting are objects.
func (r *settingReader[C]) objectsOf(row *settingRowOf[C]) {
	if row.absolute {
		return
	}
	names := strings.Split(row.path, ".")
	for i := range names {
		path := strings.Join(append([]string{durableTaskPath}, names[:i]...), ".")
		if r.known[strings.ToLower(path)] {
			continue
		}
		r.known[strings.ToLower(path)] = true
		r.objects = append(r.objects, path)
		if s, ok := r.found.lookup(path); ok && s.kind != kindObject {
			r.problem(s.wrong(path, "an object"))
		}
	}
}

// row reads one setting.
func (r *settingReader[C]) row(row *settingRowOf[C], cfg *C) {
	if text := row.onPlanOf(r.plan); text != "" && row.inert == "" {
		s := setting{path: row.fullPath(), kind: kindString, text: text, source: "default on the " + r.plan.String() + " plan"}
		r.take(row, row.fullPath(), s, cfg)
	}
	counts := ""
	for _, path := range row.places() {
		r.known[strings.ToLower(path)] = true
		s, ok := r.lookup(row, path)
		switch {
		case !ok:
		case row.inert != "":
			r.notice("The setting %s has no effect (%s): %s.", path, s.source, row.inert)
		case counts != "":
			r.notice("The setting %s has no effect (%s): %s is given.", path, s.source, counts)
		case r.take(row, path, s, cfg):
			counts = path
			if strings.HasPrefix(path, flatPath+".") {
				r.notice("The setting %s is taken for %s (%s): that is where it stands since version 2 of the host.", path, row.fullPath(), s.source)
			}
		}
	}
}

// lookup returns the setting at path. A list may be given by its elements only,
// as variables do: …__publishEventTypes__0.
func (r *settingReader[C]) lookup(row *settingRowOf[C], path string) (setting, bool) {
	s, ok := r.found.lookup(path)
	if _, list := row.values.(listValueOf[C]); list && !ok {
		if elements := r.found.children(path); len(elements) > 0 {
			return setting{path: path, kind: kindArray, source: elements[0].source}, true
		}
	}
	return s, ok
}

// take reads a setting; false means that it counts as not given.
func (r *settingReader[C]) take(row *settingRowOf[C], path string, s setting, cfg *C) bool {
	err := row.values.take(r, path, s, cfg)
	if errors.Is(err, errUnset) {
		return false
	}
	if err == nil && row.check != nil {
		err = row.check(cfg, path, s)
	}
	r.problem(err)
	r.sources[row.fullPath()] = s.source
	return true
}

// unknown remarks on each setting in an object of ours that no row has.
func (r *settingReader[C]) unknown(rows []settingRowOf[C]) {
	for _, path := range r.objects {
		for _, s := range r.found.children(path) {
			if r.known[strings.ToLower(s.path)] {
				continue
			}
			near := nearestSetting(rows, s.path)
			if near != "" {
				near = " Did you mean " + near + "?"
			}
			r.notice("The setting %s is not a known setting and has no effect (%s).%s", s.path, s.source, near)
		}
	}
	for _, s := range r.found.children("extensions") {
		if name := lastName(s.path); !strings.EqualFold(name, "durableTask") && editDistance(strings.ToLower(name), "durabletask") <= 2 {
			r.notice("The setting %s is not a known setting and has no effect (%s). Did you mean %s?", s.path, s.source, durableTaskPath)
		}
	}
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
