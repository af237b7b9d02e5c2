package handler

import "strings"

// nearestSetting returns the full path of the known setting whose name is the
// most like that at path, "" if none is much like it. Of several alike, one in
// the same object comes first.
func nearestSetting[C any](rows []settingRowOf[C], path string) string {
	nearest, best := "", 1<<30
	name := strings.ToLower(lastName(path))
	for i := range rows {
		row := &rows[i]
		if row.absolute {
			continue
		}
		for _, place := range row.places() {
			known := strings.ToLower(lastName(place))
			d := editDistance(name, known)
			if d > max(len(name), len(known))*2/5 {
				continue
			}
			d *= 2
			if !strings.EqualFold(place[:len(place)-len(known)], path[:len(path)-len(name)]) {
				d++
			}
			if d < best {
				nearest, best = row.fullPath(), d
			}
		}
	}
	return nearest
}

// editDistance returns how many characters must be inserted, removed or
// replaced to make b of a (Levenshtein).
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
