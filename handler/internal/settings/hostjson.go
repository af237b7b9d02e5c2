package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/jsonc"
)

// maxHostJSONDepth is the largest nesting depth of host.json.
const maxHostJSONDepth = 64

// ParseHostJSON parses host.json like the Functions host: it accepts comments, trailing commas and a
// byte order mark, and ignores the case of names. It returns all values with their lines, including
// objects and arrays. If names differ only in case, the last one applies.
func ParseHostJSON(text []byte) (Settings, error) {
	found := New()
	if !utf8.Valid(text) {
		return found, errors.New("host.json is not UTF-8 text")
	}
	plain := PlainJSON(text)
	r := &hostJSONReader{text: plain, dec: json.NewDecoder(bytes.NewReader(plain)), found: &found}
	r.dec.UseNumber()
	if err := r.value("", 0); err != nil {
		return New(), fmt.Errorf("host.json line %d: %w", r.errorLine(err), plainSyntaxError(err))
	}
	if root := found.byPath[""]; root.kind != kindObject {
		return New(), fmt.Errorf("host.json line %d: want an object, found %s", r.line(), root.literal())
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return New(), fmt.Errorf("host.json line %d: there is text after the object", r.line())
	}
	delete(found.byPath, "")
	return found, nil
}

type hostJSONReader struct {
	text  []byte
	dec   *json.Decoder
	found *Settings
}

// value reads the next value and stores it, with all values in it, under path.
func (r *hostJSONReader) value(path string, depth int) error {
	if depth > maxHostJSONDepth {
		return fmt.Errorf("is nested more than %d deep", maxHostJSONDepth)
	}
	token, err := r.dec.Token()
	if err != nil {
		return err
	}
	s := Setting{path: path, Source: fmt.Sprintf("host.json line %d", r.line())}
	switch v := token.(type) {
	case json.Delim:
		s.kind = kindObject
		if v == '[' {
			s.kind = kindArray
		}
		r.found.remove(path)
		r.found.set(s)
		return r.members(path, v == '{', depth)
	case string:
		s.kind, s.Text = kindString, v
	case json.Number:
		s.kind, s.Text = kindNumber, v.String()
	case bool:
		s.kind, s.Text = kindBool, fmt.Sprint(v)
	case nil:
		s.kind = kindNull
	}
	r.found.remove(path)
	r.found.set(s)
	return nil
}

// members reads the members of an object or array and its closing delimiter.
func (r *hostJSONReader) members(path string, object bool, depth int) error {
	for i := 0; r.dec.More(); i++ {
		name := fmt.Sprint(i)
		if object {
			token, err := r.dec.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string)
		}
		if path != "" {
			name = path + "." + name
		}
		if err := r.value(name, depth+1); err != nil {
			return err
		}
	}
	_, err := r.dec.Token()
	return err
}

// line returns the line where the last token ends, starting at 1.
func (r *hostJSONReader) line() int { return lineAt(r.text, r.dec.InputOffset()) }

// errorLine returns the line of err.
func (r *hostJSONReader) errorLine(err error) int {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return lineAt(r.text, syntax.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return lineAt(r.text, int64(len(r.text)))
	}
	return r.line()
}

func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), int64(len(text)))], []byte("\n"))
}

// plainSyntaxError returns a readable error for a file that ends too early.
func plainSyntaxError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends before the end of its object")
	}
	return err
}

// PlainJSON converts host.json, local.settings.json or function.json to plain JSON. Like
// Newtonsoft.Json it accepts a byte order mark, comments and trailing commas. It keeps all lines, and
// all offsets after the mark.
func PlainJSON(text []byte) []byte {
	return jsonc.ToJSON(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
}

// HostJSONFile is the name of the file that identifies an app's root folder.
const HostJSONFile = "host.json"

// FindAppRoot returns the folder with host.json. It returns the first of the named folders that is not
// "". Otherwise it searches the working directory and its parents, and then the folder of the program
// and its parents. If none has a host.json, it returns the working directory.
func FindAppRoot(named ...string) string {
	for _, dir := range named {
		if dir != "" {
			return dir
		}
	}
	here, err := os.Getwd()
	if err != nil {
		here = "."
	}
	if dir, ok := hostJSONAbove(here); ok {
		return dir
	}
	if program, err := os.Executable(); err == nil {
		if dir, ok := hostJSONAbove(filepath.Dir(program)); ok {
			return dir
		}
	}
	return here
}

// hostJSONAbove returns dir or its nearest parent that contains a host.json.
func hostJSONAbove(dir string) (string, bool) {
	for {
		if info, err := os.Stat(filepath.Join(dir, HostJSONFile)); err == nil && info.Mode().IsRegular() {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

// LocalSettingsFile is the name of the file with the settings for Core Tools on a developer's machine.
const LocalSettingsFile = "local.settings.json"

// ReadLocalSettings returns the Values and ConnectionStrings of root's local.settings.json as
// environment variables, sorted by name. It returns none if the file does not exist. It follows Core
// Tools (Common/AppSettingsFile.cs, SecretsManager.cs), with one exception: a file without IsEncrypted
// is plain text.
func ReadLocalSettings(root string) ([][2]string, error) {
	text, err := os.ReadFile(filepath.Join(root, LocalSettingsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseLocalSettings(text)
}

func parseLocalSettings(text []byte) ([][2]string, error) {
	var file struct {
		IsEncrypted       bool
		Values            map[string]any
		ConnectionStrings map[string]any
	}
	dec := json.NewDecoder(bytes.NewReader(PlainJSON(text)))
	dec.UseNumber()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("read %s: %w", LocalSettingsFile, plainSyntaxError(err))
	}
	if file.IsEncrypted {
		return nil, fmt.Errorf("%s is encrypted: decrypt it with `func settings decrypt`", LocalSettingsFile)
	}
	var out [][2]string
	add := func(name string, value any) error {
		switch v := value.(type) {
		case nil:
			return nil
		case string:
			out = append(out, [2]string{name, v})
		case json.Number, bool:
			out = append(out, [2]string{name, fmt.Sprint(v)})
		default:
			return fmt.Errorf("%s: the value of %q must be a string", LocalSettingsFile, name)
		}
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(out[len(out)-1][1], "\x00") {
			return fmt.Errorf("%s: %q cannot be an environment variable", LocalSettingsFile, name)
		}
		return nil
	}
	for name, value := range file.Values {
		if err := add(name, value); err != nil {
			return nil, err
		}
	}
	for name, value := range file.ConnectionStrings {
		// Visual Studio writes {"ConnectionString": …, "ProviderName": …}.
		if object, ok := value.(map[string]any); ok {
			value = object["ConnectionString"]
		}
		if err := add("ConnectionStrings:"+name, value); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out, nil
}

// ApplyLocalSettings sets the variables in vars that do not exist in the environment. A variable that
// exists takes precedence, even if it is empty, as with `func start`
// (Actions/HostActions/StartHostAction.cs).
func ApplyLocalSettings(vars [][2]string) error {
	for _, v := range vars {
		if _, exists := os.LookupEnv(v[0]); exists {
			continue
		}
		if err := os.Setenv(v[0], v[1]); err != nil {
			return fmt.Errorf("set %s from %s: %w", v[0], LocalSettingsFile, err)
		}
	}
	return nil
}
