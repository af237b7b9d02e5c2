package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// plantedKeys have the formats of Azure's keys: of a storage account, a topic, a newer topic and a
// function app.
var plantedKeys = []string{
	"q0n7V1xZ4kd0Yw8mGQ3Jp2sT9bRfLh6UcEaXoNi5KtvMzB+HyWDgS/jOIurPlA8eCqF7x1Z2v3B4n5M6a7S8dA==",
	"kZ8f3Qw1R5t7Yu9Io2Pa4Sd6Fg8Hj0Kl1Zx3Cv5Bn7M=",
	"4Fz8Qm1Xc7Vb2Nn6Ma9Ss3Dd5Ff0Gg8Hh4Jj2Kk7Ll1Pp6Oo9Ii3Uu5Yy0Tt8Rr4Ee2Ww7Qq1AZEGABAQ5x",
	"t3Yb-Kq9_Wm2Zr7Xc5Vn8Lp1Hs4Gd6Jf0Aa3Ss5Dd7Ff9Gg1Hh3Jj5Kk==",
}

// planted lists texts that may contain a secret by mistake.
var planted = []func(key string) string{
	func(key string) string {
		return "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + key + ";EndpointSuffix=core.windows.net"
	},
	func(key string) string { return "AccountName = a ; accountkey = " + key },
	func(key string) string {
		return "https://a.blob.core.windows.net/c?sv=2024-11-04&sig=" + url.QueryEscape(key) + "&se=2030"
	},
	func(key string) string {
		return "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=2024&sig=" + url.QueryEscape(key)
	},
	func(key string) string {
		return "QueueEndpoint=https://a.queue.core.windows.net/?sig=" + key + ";AccountName=a;AccountKey=a2V5"
	},
	func(key string) string { return "Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=" + key },
	func(key string) string { return "https://user:" + key + "@topic.example/api/events" },
	func(key string) string { return "https://topic.example/api/events?code=" + key },
	func(key string) string { return key },
}

// plantedVariables are the environment variables whose text the app may show. Settings are tested
// separately.
var plantedVariables = []string{
	"AzureWebJobsStorage", "AzureWebJobsStorage__accountName", "AzureWebJobsStorage__blobServiceUri", "AzureWebJobsStorage__credential",
	"ConnectionStrings__Storage", "DURABLE_LOG_LEVEL", "DURABLE_LOG_FORMAT", "DURABLE_ADDRESS",
}

// Every logger masks secrets itself.
func TestSecrets_AreMaskedByEachLogger(t *testing.T) {
	t.Parallel()
	for name, newLogger := range map[string]func(io.Writer, slog.Level) *slog.Logger{"text": NewLogger, "JSON": NewJSONLogger} {
		var out bytes.Buffer
		newLogger(&out, slog.LevelInfo).Info("open AccountKey=c2VjcmV0", "url", "https://a/?sig=c2VjcmV0")
		if strings.Contains(out.String(), "c2VjcmV0") || !strings.Contains(out.String(), "https://a/") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// Some secrets do not look like one. A value in place of a setting name that is not a valid name is not
// shown.
func TestSecrets_InPlaceOfASettingNameAreNotShown(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"storageProvider.connectionName", "storageProvider.trackingStoreConnectionName", "notifications.eventGrid.keySettingName"} {
		cfg := configured(t, nestedBelow(settings.DurableTaskPath+"."+path, "hunter 2!"))
		if cfg.Problem == nil || strings.Contains(cfg.Problem.Error(), "hunter") || !strings.Contains(cfg.Problem.Error(), path) {
			t.Errorf("%s: the problem is %v", path, cfg.Problem)
		}
	}
}

func FuzzSecrets_AreInNoOutput(f *testing.F) {
	rows := settingRows()
	for i := range len(rows) + len(plantedVariables) {
		for form := range planted {
			if testing.Short() && form != i%len(planted) {
				continue
			}
			f.Add(uint8(i), uint8(form), uint8(i%len(plantedKeys)), form%2 == 0, "", "")
		}
	}
	f.Add(uint8(0), uint8(0), uint8(0), true, `a"b;`, "\\\n%")
	f.Fuzz(func(t *testing.T, where, form, which uint8, inFile bool, before, after string) {
		key, row := plantedKeys[int(which)%len(plantedKeys)], int(where)%(len(rows)+len(plantedVariables))
		text := planted[int(form)%len(planted)](key)
		if text != key { // a key that stands alone has no surrounding text
			text = before + text + after
		}
		hostJSON, variable := "{}", ""
		switch {
		case row >= len(rows):
			variable = plantedVariables[row-len(rows)]
		case rows[row].FullPath() == routePrefixPath && text == key:
			return // it would be part of every URL
		case rows[row].Absolute:
			hostJSON = nestedBelow(rows[row].Path, text)
		default:
			hostJSON = nestedBelow(rows[row].FullPath(), text)
		}
		found, err := settings.ParseHostJSON([]byte(hostJSON))
		if err != nil {
			return // not UTF-8
		}
		out := saidOf(t, found, inFile, variable, text)
		for _, piece := range []string{key[:12], key[12:24], key[24:36], url.QueryEscape(key)[:20], url.QueryEscape(key)[20:40]} {
			for line := range strings.Lines(out) {
				if strings.Contains(line, piece) {
					t.Fatalf("%s %s=%q shows %q: %s", hostJSON, variable, text, piece, line)
				}
			}
		}
	})
}

// saidOf returns everything that an app shows about its settings, with text in the given variable.
func saidOf(t *testing.T, found settings.Settings, inFile bool, variable, text string) string {
	var out bytes.Buffer
	env := settings.Environment{}
	switch variable {
	case "DURABLE_LOG_LEVEL":
		env.LogLevel = text
	case "DURABLE_LOG_FORMAT":
		env.LogFormat = text
	}
	environ := []string{variable + "=" + text}
	if inFile { // the connection is not resolved then, but its name is shown
		environ = append(environ, "AzureFunctionsJobHost__extensions__durableTask__storageProvider__type=embedded")
	}
	cfg := configure(env, found, environ)
	cfg.Root = t.TempDir()
	if variable == "DURABLE_ADDRESS" {
		cfg.Address = text
	}
	cfg.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := New(starter, cfg)
	s.logStart(s.cfg.Address)
	wrong := fmt.Errorf("dial: %w", &url.Error{Op: "Get", URL: text, Err: errors.New(text)})
	if s.cfg.Problem == nil {
		s.state.SetUnavailable(secrets.Line(wrong))
	} else {
		s.logger.Error("problem", "reason", configReason(s.cfg.Problem), "error", s.cfg.Problem)
	}
	s.logger.With("with", text).WithGroup("g").Warn(text, "error", wrong, slog.Group("in", "a", text))
	base := web.GroupPath(s.cfg.RoutePrefix)
	asked := []string{"/", management.LivePath, management.ReadyPath, base + "/nowhere", base + web.ManagementPath + "/configuration", base + web.ManagementPath + "/instances"}
	for _, target := range asked {
		w := call(s, http.MethodGet, target, "")
		fmt.Fprintln(&out, w.Code, w.Header(), w.Body)
	}
	if s.cfg.Problem == nil {
		s.cfg.Provider = newFakeHub()
		s = New(starter, s.cfg)
		s.state.SetReady()
		w := call(s, http.MethodPost, base+"/orders", "")
		fmt.Fprintln(&out, w.Code, w.Header(), w.Body)
	}
	tool := hubcli.Program{Name: "app", Stdout: &out, Stderr: &out, Copy: func(ctx context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
		return hubCopy{cfg}.once(ctx, r)
	}}
	for _, args := range [][]string{{"copy", "azurestorage:" + text, "embedded"}, {"copy", text, "embedded"}, {"copy", "a", "b", text}, {text}} {
		if code := tool.Run(t.Context(), args); code == hubcli.ExitOK {
			t.Fatalf("hub %q is done", args)
		}
	}
	return out.String()
}

// nestedBelow returns a host.json with text at path.
func nestedBelow(path, text string) string {
	value, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	out := string(value)
	names := strings.Split(path, ".")
	for i := len(names) - 1; i >= 0; i-- {
		out = fmt.Sprintf("{%q: %s}", names[i], out)
	}
	return out
}
