// Command zipapp writes the zip that a function app on Linux runs from: what
// the Functions host needs of the app's folder, and the executable that
// host.json names, with the mode bits that a Premium plan does not set by
// itself. The same files give the same bytes.
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

// write makes the zip in a file beside out first, so that out is never half a
// zip. It returns the number of files in it.
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
