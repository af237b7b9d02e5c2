package stdorder

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	htmltemplate "html/template"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/cgi"
	"net/http/fcgi"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"net/url"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing/fstest"
	"text/template"
	"text/template/parse"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func drops(ctx *durable.Context, m map[string]int) (int, error) {
	_ = slices.Contains(keys(m), "a")
	_ = slices.ContainsFunc(keys(m), isShort)
	_ = slices.Max(keys(m))
	_ = slices.Min(keys(m))
	_ = slices.Sorted(maps.Keys(m))
	_ = slices.SortedFunc(maps.Keys(m), strings.Compare)
	_ = slices.SortedStableFunc(maps.Keys(m), strings.Compare)
	copied := maps.Clone(m)
	_ = maps.Collect(maps.All(m))
	maps.Copy(copied, m)
	_ = maps.Equal(copied, m)
	maps.Insert(copied, maps.All(m))
	return len(keys(m)) + cap(keys(m)), nil
}

func ofTypes(ctx *durable.Context, v any) (int, error) {
	t, value := reflect.TypeOf(v), reflect.ValueOf(v)
	_ = slices.Collect(t.Fields())
	_ = slices.Collect(t.Ins())
	_ = slices.Collect(t.Methods())
	_ = slices.Collect(t.Outs())
	_ = iterate(value.Fields())
	_ = iterate(value.Methods())
	return 0, nil
}

func web(ctx *durable.Context, in string) (string, error) {
	var out bytes.Buffer
	values, err := url.ParseQuery(in)
	_ = (&url.URL{RawQuery: in}).Query()
	values.Set("a", values.Get("b"))
	values.Del("c")
	_ = values.Has("d")
	_ = values.Encode()
	header := http.Header{}
	header.Set("a", header.Get("b"))
	header.Del("c")
	_ = header.Values("d")
	_ = header.Clone()
	_ = header.Write(&out)
	_ = header.WriteSubset(&out, nil)
	fields := textproto.MIMEHeader{}
	fields.Set("a", fields.Get("b"))
	fields.Del("c")
	_ = fields.Values("d")
	_, _ = textproto.NewReader(bufio.NewReader(&out)).ReadMIMEHeader()
	_, _ = cgi.RequestFromMap(map[string]string{"a": in})
	_ = fcgi.ProcessEnv(&http.Request{})
	_ = httptest.NewRecorder().Header()
	_, _ = mail.Header(header).AddressList("a")
	_, _ = mail.Header(header).Date()
	_ = mail.Header(header).Get("b")
	_ = mime.FormatMediaType("a", map[string]string{"b": in})
	_, _, _ = mime.ParseMediaType(in)
	_, _ = multipart.NewWriter(&out).CreatePart(fields)
	return out.String(), err
}

func sources(ctx *durable.Context, in string) (string, error) {
	_ = template.New(in).Funcs(template.FuncMap{})
	_ = htmltemplate.New(in).Funcs(htmltemplate.FuncMap{})
	trees, err := parse.Parse(in, in, "", "")
	_, _ = parse.New(in).Parse(in, "", "", trees)
	file := &ast.File{}
	comments := ast.NewCommentMap(token.NewFileSet(), file, nil)
	_ = comments.Comments()
	_ = comments.Filter(file)
	_ = comments.String()
	_ = comments.Update(file, file)
	_ = slices.Collect(ast.Preorder(file))
	doc.ToHTML(new(bytes.Buffer), in, map[string]string{"a": in})
	_, _ = parser.ParseDir(token.NewFileSet(), in, nil, 0)
	iface, named := types.NewInterfaceType(nil, nil), new(types.Named)
	_ = slices.Collect(iface.EmbeddedTypes())
	_ = slices.Collect(iface.ExplicitMethods())
	_ = slices.Collect(iface.Methods())
	_ = slices.Collect(types.NewMethodSet(iface).Methods())
	_ = slices.Collect(named.Methods())
	_ = slices.Collect(types.Universe.Children())
	_ = slices.Collect(types.NewStruct(nil, nil).Fields())
	_ = slices.Collect(types.NewTuple().Variables())
	_ = slices.Collect(named.TypeArgs().Types())
	_ = slices.Collect(named.TypeParams().TypeParams())
	_ = slices.Collect(types.NewUnion(nil).Terms())
	files := fstest.MapFS{}
	_, _ = files.Glob(in)
	_, _ = files.Lstat(in)
	_, _ = files.Open(in)
	_, _ = files.ReadDir(in)
	_, _ = files.ReadFile(in)
	_, _ = files.ReadLink(in)
	_, _ = files.Stat(in)
	_, _ = files.Sub(in)
	return in, err
}

func sorts(ctx *durable.Context, m map[string]int) ([]string, error) {
	ks := make([][]string, 9)
	for i := range ks {
		ks[i] = sortedIn(i, m)
	}
	return ks[0], nil
}

func sortedIn(way int, m map[string]int) []string {
	a, b, c, d, e, f, g, h := keys(m), keys(m), keys(m), keys(m), keys(m), keys(m), keys(m), keys(m)
	slices.Sort(a)
	slices.SortFunc(b, strings.Compare)
	slices.SortStableFunc(c, strings.Compare)
	sort.Strings(d)
	sort.Slice(e, func(i, j int) bool { return e[i] < e[j] })
	sort.SliceStable(f, func(i, j int) bool { return f[i] < f[j] })
	sort.Sort(sort.StringSlice(g))
	sort.Stable(sort.StringSlice(h))
	i := sort.StringSlice(keys(m))
	i.Sort()
	counts := slices.Collect(maps.Values(m))
	sort.Ints(counts)
	more := slices.Collect(maps.Values(m))
	sort.IntSlice(more).Sort()
	weights := slices.Collect(maps.Values(map[string]float64{"a": 1}))
	sort.Float64s(weights)
	others := slices.Collect(maps.Values(map[string]float64{"a": 1}))
	sort.Float64Slice(others).Sort()
	return slices.Concat(a, b, c, d, e, f, g, h, i)
}
