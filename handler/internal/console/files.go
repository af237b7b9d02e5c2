package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

//go:embed templates static
var files embed.FS

// templates are the pages by their names, each with the layout. They are read by the first
// visit.
var templates = sync.OnceValue(func() map[string]*template.Template {
	common := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html"))
	pages := map[string]*template.Template{}
	names, _ := fs.Glob(files, "templates/*.html") // the pattern is right
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		pages[page] = template.Must(template.Must(common.Clone()).ParseFS(files, name))
	}
	return pages
})

// functions are what templates can call.
var functions = template.FuncMap{
	"when": when,
	"seconds": func(s float64) string {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
	},
	"query":      query,
	"entityForm": func(v view, name, key string) entityForm { return entityForm{v, name, key} },
	"text":       visible,
	"elementID":  elementID,

	"at":          address,
	"instance":    instanceLink,
	"part":        func(id, url string) followedPart { return followedPart{id, url, "load, follow"} },
	"folded":      func(id, url string) followedPart { return followedPart{id, url, "follow"} },
	"duration":    lengthOf,
	"length":      func(from, to time.Time) string { return lengthOf(to.Sub(from)) },
	"statusClass": statusClass,
}

// An entityForm is a form that signals an entity, or one that is named in it if Name is "".
type entityForm struct {
	view
	Name, Key string
}

// A followedPart is a part of a page that reloads when console.js triggers the event "follow".
type followedPart struct{ ID, URL, Trigger string }

// visible returns a text with escapes in place of invisible characters and of characters that
// change the direction of text.
func visible(text any) string {
	var out strings.Builder
	for _, r := range fmt.Sprint(text) {
		if unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			out.WriteRune(r)
		} else {
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return out.String()
}

// elementID returns an ID for an element, which depends on a text alone.
func elementID(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "e" + hex.EncodeToString(sum[:8])
}

// query returns the query of a URL that has names and values in turn, for any attribute.
// Templates escape values by themselves only in attributes that they know to be URLs, such as
// href: not in hx-get.
func query(pairs ...any) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
	}
	return template.URL(values.Encode())
}

// when returns a time as an element, "" for the zero time. A script replaces its text by the
// distance from now; the title is the exact time.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" title="` + t.Format("2006-01-02 15:04:05.000 UTC") + `">` + t.Format("2006-01-02 15:04:05") + `</time>`)
}

// filesVersion is in the files' addresses, so that browsers can keep each version.
var filesVersion = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, name := range fileNames {
		text, _ := files.ReadFile("static/" + name) // it is there
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
})

// fileNames are the files that pages load.
var fileNames = []string{"console.css", "console.js", "htmx.min.js", "icon.svg"}

var staticRoutes = func() (routes []route) {
	for _, name := range fileNames {
		routes = append(routes, route{method: http.MethodGet, path: "static/" + name, serve: serveFile, forAll: true, always: true})
	}
	return routes
}()

// contentTypes are those of the files, by their extensions.
var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// serveFile answers with a file for pages. It has a version in its address, and never changes.
func serveFile(v *visit) error {
	name := path.Base(v.Request().URL.Path)
	text, err := files.ReadFile("static/" + name)
	kind := contentTypes[path.Ext(name)]
	if err != nil || kind == "" {
		return errNoPage
	}
	v.Response().Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	return v.Blob(http.StatusOK, kind, text)
}
