// Command prose checks that comments and documents are plain English. It runs Vale with the rules in .github/vale,
// prints each match, and fails if a package or a document has more matches than it may:
//
//   - comments: 8 matches of Idiom, Cleft and US per 1,000 lines of comments, 2 in packages with fewer than 250 lines
//   - documents: 1 match per 1,000 words, none in README.md; 2 % of the sentences may have more than 25 words
//
// With -table it prints the figures of each package and document.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

const vale = "github.com/vale-cli/vale/v3/cmd/vale@v3.21.0"

// An alert is a match of a rule, as Vale prints it.
type alert struct {
	Check, Message string
	Line           int
}

func (a alert) isLongSentence() bool { return strings.HasSuffix(a.Check, ".SentenceLength") }

// figures count the matches of a package or a document.
type figures struct {
	name                string
	lines               int // of comments; 0 for a document
	words, sentences    int // of a document
	matches, tooLong    int
	limit, limitTooLong int
}

func main() {
	table := flag.Bool("table", false, "print the figures of each package and document")
	flag.Parse()
	if err := run(*table); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(table bool) error {
	out, err := exec.Command("git", "ls-files", "*.go", "*.md").Output()
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	files := slices.DeleteFunc(strings.Fields(string(out)), func(f string) bool { return strings.Contains(f, "testdata/") })
	alerts, err := check(files)
	if err != nil {
		return err
	}
	all := map[string]*figures{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) { // deleted, and not committed
			continue
		}
		if err != nil {
			return err
		}
		name := file
		if path.Ext(file) == ".go" {
			name = path.Dir(file)
		}
		if all[name] == nil {
			all[name] = &figures{name: name}
		}
		all[name].add(file, string(text), alerts[file])
	}
	tooMany := false
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		f.setLimits()
		if table {
			fmt.Printf("%-60s %5d comment lines %6d words %4d matches of %d %4d long sentences of %d\n",
				name, f.lines, f.words, f.matches, f.limit, f.tooLong, f.limitTooLong)
		}
		if f.matches > f.limit || f.tooLong > f.limitTooLong {
			fmt.Printf("%s has %d matches and %d long sentences; want at most %d and %d\n", name, f.matches, f.tooLong, f.limit, f.limitTooLong)
			tooMany = true
		}
	}
	for _, file := range slices.Sorted(maps.Keys(alerts)) {
		for _, a := range alerts[file] {
			if path.Ext(file) == ".md" || !a.isLongSentence() {
				fmt.Printf("%s:%d: %s\n", file, a.Line, a.Message)
			}
		}
	}
	if tooMany {
		return errors.New("some texts need a second reading: rewrite the sentences that the lines above name")
	}
	return nil
}

// check returns the alerts of Vale by file.
func check(files []string) (map[string][]alert, error) {
	cmd := exec.Command("go", append([]string{"run", vale, "--output=JSON", "--no-exit"}, files...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // the parsers of Vale are in C
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run Vale: %w\n%s", err, out)
	}
	alerts := map[string][]alert{}
	if err := json.Unmarshal(out, &alerts); err != nil {
		return nil, fmt.Errorf("decode the output of Vale: %w", err)
	}
	return alerts, nil
}

// add counts a file.
func (f *figures) add(file, text string, alerts []alert) {
	if path.Ext(file) == ".go" {
		f.lines += commentLines(text)
	} else {
		f.words, f.sentences = proseOf(text)
	}
	for _, a := range alerts {
		if a.isLongSentence() {
			f.tooLong++
		} else {
			f.matches++
		}
	}
}

// setLimits computes the limits from the size.
func (f *figures) setLimits() {
	switch {
	case f.name == "README.md":
		f.limitTooLong = f.sentences / 50
	case f.words > 0:
		f.limit, f.limitTooLong = (f.words+999)/1000, f.sentences/50+1
	case f.lines < 250:
		f.limit, f.limitTooLong = 2, f.tooLong
	default:
		f.limit, f.limitTooLong = 8*f.lines/1000, f.tooLong
	}
}

// commentLines returns the number of lines with comments in Go source.
func commentLines(source string) (n int) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), []byte(source), nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.COMMENT {
			n += 1 + strings.Count(text, "\n")
		}
	}
}

var (
	codeBlock   = regexp.MustCompile("(?ms)^```.*?^```")
	sentenceEnd = regexp.MustCompile(`[.:?!](\s|$)`)
)

// proseOf returns the numbers of words and sentences of a document without its code blocks.
func proseOf(text string) (words, sentences int) {
	text = codeBlock.ReplaceAllString(text, "")
	return len(strings.Fields(text)), len(sentenceEnd.FindAllString(text, -1))
}
