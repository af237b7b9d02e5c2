package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LocalSettingsFile holds the settings that Core Tools gives an app on a
// developer's machine.
const LocalSettingsFile = "local.settings.json"

// ReadLocalSettings returns the Values and ConnectionStrings of root's
// local.settings.json as environment variables, in order of their names; none
// if there is no such file. It follows Core Tools (Common/AppSettingsFile.cs,
// SecretsManager.cs), except that a file that does not say whether it is
// encrypted is read as plain text.
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

// ApplyLocalSettings sets those of vars that the environment does not have. A
// variable that exists wins, even if it is empty, as with `func start`
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
