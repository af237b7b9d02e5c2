// Command zipapp writes the zip of a function app for Linux. It contains the files of the app's folder that
// the Functions host needs, and the executable that host.json names. The zip has the mode bits that a Premium
// plan does not set. The same files result in the same bytes.
//
//	go run ./scripts/zipapp -app FILE -o app.zip
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "folder of the app: where host.json is")
	app := flag.String("app", "", "executable for linux/amd64 (required)")
	out := flag.String("o", "app.zip", "zip to write")
	flag.Parse()
	if *app == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	n, err := write(*out, *root, *app)
	note := ""
	if err == nil {
		note, err = planNote(*root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "zipapp:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d files\n", *out, n)
	if note != "" {
		fmt.Fprintln(os.Stderr, note)
	}
}

// write writes the zip to a temporary file next to out and renames it, so that out is never incomplete. It
// returns the number of files.
func write(out, root, app string) (n int, err error) {
	entries, err := list(root, app)
	if err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".zipapp-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // after the rename there is nothing to remove
	if err := pack(tmp, entries); err != nil {
		tmp.Close() //nolint:errcheck // the file is given up
		return 0, err
	}
	if err := tmp.Chmod(0o644); err != nil {
		tmp.Close() //nolint:errcheck // the file is given up
		return 0, err
	}
	if err := tmp.Close(); err != nil {
		return 0, err
	}
	return len(entries), os.Rename(tmp.Name(), out)
}
