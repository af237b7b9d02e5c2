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
	"strings"
	"sync"
	"time"
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
	"ago":        ago,
	"query":      query,
	"entityForm": func(v view, name, key string) entityForm { return entityForm{v, name, key} },
	"link":       func(v view, to, text string) link { return link{v.Base, to, text, v.Path == to} },

	"at":          address,
	"instanceURL": instanceURL,
	"later":       newLater,
	"duration":    lengthOf,
	"length":      func(from, to time.Time) string { return lengthOf(to.Sub(from)) },
	"statusClass": statusClass,
}

// An entityForm is a form that signals an entity, or one that is named in it if Name is "".
type entityForm struct {
	view
	Name, Key string
}

// A link leads to a page of the navigation.
type link struct {
	Base, To, Text string
	Here           bool
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

// when returns a time as a page shows it, "" for none.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `">` + t.Format("2006-01-02 15:04:05") + `</time>`)
}

// ago returns how long ago a time is, "" for none.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return now.Sub(t).Round(time.Second).String()
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
var fileNames = []string{"console.css", "instances.css", "console.js", "htmx.min.js", "icon.svg"}

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
