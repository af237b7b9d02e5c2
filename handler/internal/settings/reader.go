package settings

import (
	"errors"
	"fmt"
	"strings"
)

// A Reader reads settings into a configuration. It collects all problems, so that an operator can fix
// them together.
type Reader[C any] struct {
	found    Settings
	vars     Variables
	plan     Plan
	known    map[string]bool // paths of known settings and objects, in lower case
	objects  []string        // paths of objects, in the order of the rows
	problems []error
	notices  []string

	// Sources maps the full path of each row to the source of its setting.
	Sources map[string]string
}

// NewReader returns a Reader for the settings found. vars resolves %NAME% in values.
func NewReader[C any](found Settings, vars Variables, p Plan) *Reader[C] {
	return &Reader[C]{found: found, vars: vars, plan: p, known: map[string]bool{}, Sources: map[string]string{}}
}

// Problem adds err to the problems. It ignores nil.
func (r *Reader[C]) Problem(err error) {
	if err != nil {
		r.problems = append(r.problems, err)
	}
}

// Notice adds a sentence to the notices.
func (r *Reader[C]) Notice(format string, args ...any) {
	r.notices = append(r.notices, fmt.Sprintf(format, args...))
}

// Problems returns all problems as one error, or nil.
func (r *Reader[C]) Problems() error { return errors.Join(r.problems...) }

// Notices returns remarks about settings that have no effect, each a sentence.
func (r *Reader[C]) Notices() []string { return r.notices }

// Read reads all settings in rows into cfg.
func (r *Reader[C]) Read(rows []Row[C], cfg *C) {
	r.objects = []string{FlatPath}
	if s, ok := r.found.Lookup("extensions"); ok && s.kind != kindObject {
		r.Problem(s.wrong("extensions", "an object"))
	}
	for i := range rows {
		r.objectsOf(&rows[i])
		r.row(&rows[i], cfg)
	}
	r.unknown(rows)
}

// objectsOf checks that the parents of a row's setting are objects.
func (r *Reader[C]) objectsOf(row *Row[C]) {
	if row.Absolute {
		return
	}
	names := strings.Split(row.Path, ".")
	for i := range names {
		path := strings.Join(append([]string{DurableTaskPath}, names[:i]...), ".")
		if r.known[strings.ToLower(path)] {
			continue
		}
		r.known[strings.ToLower(path)] = true
		r.objects = append(r.objects, path)
		if s, ok := r.found.Lookup(path); ok && s.kind != kindObject {
			r.Problem(s.wrong(path, "an object"))
		}
	}
}

// row reads one setting.
func (r *Reader[C]) row(row *Row[C], cfg *C) {
	if text := row.onPlanOf(r.plan); text != "" && row.NeverEffective == "" {
		s := Setting{path: row.FullPath(), kind: kindString, Text: text, Source: "default on the " + r.plan.String() + " plan"}
		r.take(row, row.FullPath(), s, cfg)
	}
	counts := ""
	for _, path := range row.places() {
		r.known[strings.ToLower(path)] = true
		s, ok := r.lookup(row, path)
		switch {
		case !ok:
		case row.NeverEffective != "":
			r.Notice("The setting %s has no effect (%s): %s.", path, s.Source, row.NeverEffective)
		case counts != "":
			r.Notice("The setting %s has no effect (%s): %s is set.", path, s.Source, counts)
		case r.take(row, path, s, cfg):
			counts = path
			if row.NoEffect != nil && row.NoEffect(cfg) != "" {
				r.Notice("The setting %s has no effect (%s): %s.", path, s.Source, row.NoEffect(cfg))
			}
			if strings.HasPrefix(path, FlatPath+".") {
				r.Notice("The setting %s is read as %s (%s), its path since version 2 of the host.", path, row.FullPath(), s.Source)
			}
		}
	}
}

// lookup returns the setting at path. Variables may define only the elements of a list:
// …__publishEventTypes__0.
func (r *Reader[C]) lookup(row *Row[C], path string) (Setting, bool) {
	s, ok := r.found.Lookup(path)
	if _, list := row.Values.(List[C]); list && !ok {
		if elements := r.found.children(path); len(elements) > 0 {
			return Setting{path: path, kind: kindArray, Source: elements[0].Source}, true
		}
	}
	return s, ok
}

// take reads a setting. It returns false if the value counts as missing.
func (r *Reader[C]) take(row *Row[C], path string, s Setting, cfg *C) bool {
	err := row.Values.take(r, path, s, cfg)
	if errors.Is(err, errUnset) {
		return false
	}
	if err == nil && row.Check != nil {
		err = row.Check(cfg, path, s)
	}
	r.Problem(err)
	r.Sources[row.FullPath()] = s.Source
	return true
}

// unknown adds a notice for each setting without a row.
func (r *Reader[C]) unknown(rows []Row[C]) {
	for _, path := range r.objects {
		for _, s := range r.found.children(path) {
			if r.known[strings.ToLower(s.path)] {
				continue
			}
			near := nearestSetting(rows, s.path)
			if near != "" {
				near = " Did you mean " + near + "?"
			}
			r.Notice("The setting %s is not a known setting and has no effect (%s).%s", s.path, s.Source, near)
		}
	}
	for _, s := range r.found.children("extensions") {
		if name := LastName(s.path); !strings.EqualFold(name, "durableTask") && editDistance(strings.ToLower(name), "durabletask") <= 2 {
			r.Notice("The setting %s is not a known setting and has no effect (%s). Did you mean %s?", s.path, s.Source, DurableTaskPath)
		}
	}
}

// LastName returns the last name in a path.
func LastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// nearestSetting returns the full path of the known setting whose name is most similar to the name at
// path, or "" if no name is similar. Among equals it prefers a setting in the same object.
func nearestSetting[C any](rows []Row[C], path string) string {
	nearest, best := "", 1<<30
	name := strings.ToLower(LastName(path))
	for i := range rows {
		row := &rows[i]
		if row.Absolute {
			continue
		}
		for _, place := range row.places() {
			known := strings.ToLower(LastName(place))
			d := editDistance(name, known)
			if d > max(len(name), len(known))*2/5 {
				continue
			}
			d *= 2
			if !strings.EqualFold(place[:len(place)-len(known)], path[:len(path)-len(name)]) {
				d++
			}
			if d < best {
				nearest, best = row.FullPath(), d
			}
		}
	}
	return nearest
}

// editDistance returns the Levenshtein distance between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
