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

// templates returns the page templates by name, each with the layout. It parses them on first use.
var templates = sync.OnceValue(func() map[string]*template.Template {
	common := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html"))
	pages := map[string]*template.Template{}
	names, _ := fs.Glob(files, "templates/*.html") // the pattern is valid
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		pages[page] = template.Must(template.Must(common.Clone()).ParseFS(files, name))
	}
	return pages
})

// functions are the functions of templates.
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

// An entityForm is the data of a form that signals an entity. If Name is "", the form asks for it.
type entityForm struct {
	view
	Name, Key string
}

// A followedPart is a part that reloads when console.js triggers the event "follow".
type followedPart struct{ ID, URL, Trigger string }

// visible escapes characters in text that are invisible or change the direction of text.
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

// elementID returns an element ID that depends only on text.
func elementID(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "e" + hex.EncodeToString(sum[:8])
}

// query encodes alternating names and values as a URL query. Templates themselves escape values only in
// attributes that they know to be URLs, such as href, but not in hx-get.
func query(pairs ...any) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
	}
	return template.URL(values.Encode())
}

// when renders a time as a time element, or "" for the zero time. console.js replaces its text with the
// time relative to now. Its title is the exact time.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `" title="` + t.Format("2006-01-02 15:04:05.000 UTC") + `">` + t.Format("2006-01-02 15:04:05") + `</time>`)
}

// filesVersion returns a version for the URLs of the static files, so that browsers can cache them.
var filesVersion = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, name := range fileNames {
		text, _ := files.ReadFile("static/" + name) // all files are embedded
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
})

// fileNames lists the files that pages load.
var fileNames = []string{"console.css", "console.js", "htmx.min.js", "icon.svg"}

var staticRoutes = func() (routes []route) {
	for _, name := range fileNames {
		routes = append(routes, route{method: http.MethodGet, path: "static/" + name, serve: serveFile, forAll: true, always: true})
	}
	return routes
}()

// contentTypes maps file extensions to content types.
var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// serveFile answers with a static file. Its URL contains a version, so it can be cached forever.
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
