package hubcli

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// historyFiles returns path, or the names of all files with a history if path is a folder.
func historyFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usageError(err.Error())
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, usageError(err.Error())
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), fileSuffix) {
			names = append(names, filepath.Join(path, entry.Name()))
		}
	}
	if len(names) == 0 {
		return nil, usageError(path + " has no *" + fileSuffix + " files")
	}
	return names, nil
}

// longestName is the longest escaped ID in the name of a file, in bytes. File systems allow names of 255.
const longestName = 200

// fileSuffix ends the names of files with a history.
const fileSuffix = ".json"

// device matches names that Windows reserves for devices, also with an extension.
var device = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(\.|$)`)

// fileName returns the name of the file for the history of an instance. It is valid on Windows. The names of different
// instances differ also on file systems that ignore case: a hash distinguishes IDs with upper-case letters.
func fileName(id string) string {
	name := strings.ReplaceAll(url.PathEscape(id), ":", "%3A")
	if device.MatchString(name) {
		name = fmt.Sprintf("%%%X%s", name[0], name[1:])
	}
	sum := sha256.Sum256([]byte(id))
	switch {
	case len(name) > longestName:
		name = fmt.Sprintf("%s-%x", name[:longestName/2], sum)
	case id != strings.ToLower(id):
		name = fmt.Sprintf("%s,%x", name, sum[:4]) // no escaped ID has a comma
	}
	return name + fileSuffix
}
