package handler

import (
	"net/http"
	"strings"
	"testing"
)

const consolePath = "/api/durabletask/console"

func TestConsole_ServesEachPage(t *testing.T) {
	t.Parallel()
	s := readyServer(t, App{}, fakeConfig(t, newFullHub()))
	for _, path := range []string{"", "/login", "/instances", "/entities", "/hub"} {
		w := call(s, http.MethodGet, consolePath+path, "")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "</html>") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
