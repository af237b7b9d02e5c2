// Package docblock is for tests that check the code blocks of the documentation.
package docblock

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Marks are the words that may follow the language of a fence. Tests execute a block only if it
// has no mark, [Server] or [Stopped].
var Marks = []string{
	"azure",   // needs an Azure account
	"cluster", // needs a Kubernetes cluster
	"code",    // needs functions that the sample app does not have
	"module",  // needs a published version of the module
	"slow",    // takes minutes, or builds the app
	Server, Stopped,
}

// The marks of blocks that tests execute.
const (
	Server  = "server"  // starts the app, which runs until it is stopped
	Stopped = "stopped" // needs the task hub without a running app
)

// Block is a fenced code block of a page, or code in a comment that starts with "<!-- go" or
// "<!-- sh".
type Block struct {
	Page     string // file name
	Line     int    // line number of the first line of text
	Language string // may be empty
	Marks    []string
	Text     string
	Hidden   bool // in a comment
	Output   bool // has no language and directly follows a block of commands
}

// At returns the page and the line.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Has reports whether the block has a mark.
func (b Block) Has(mark string) bool { return slices.Contains(b.Marks, mark) }

// Executed reports whether the block has commands that tests execute.
func (b Block) Executed() bool {
	return (b.Language == "sh" || b.transcript()) && !slices.ContainsFunc(b.Marks, func(mark string) bool { return mark != Server && mark != Stopped })
}

// transcript reports whether the block has commands after "$ ", with their output.
func (b Block) transcript() bool {
	return (b.Language == "" || b.Language == "console") && strings.HasPrefix(b.Text, "$ ")
}

// Command is a command of a block.
type Command struct {
	Text   string // one line
	Output string // the output in a transcript
}

// Commands returns the commands of a block. In sh blocks each line is a command, in transcripts
// each line after "$ ".
func (b Block) Commands() (commands []Command) {
	if b.Language != "sh" && !b.transcript() {
		return nil
	}
	for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
		text, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case prompt || b.Language == "sh" && text != "" && !strings.HasPrefix(text, "#"):
			commands = append(commands, Command{Text: text})
		case b.transcript():
			commands[len(commands)-1].Output += line
		}
	}
	return commands
}

// Read returns the code blocks of a page and the lines outside them. The lines of a block in a
// list lose the indentation of its fence.
func Read(path string) (blocks []Block, prose []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var open *Block
	end, indent, adjacent := "", "", false
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		words, last := opening(trimmed)
		switch {
		case open != nil && trimmed == end:
			adjacent = open.Language == "sh"
			open.Output = open.Output && !open.transcript()
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case last != "":
			open = &Block{Page: filepath.Base(path), Line: i + 2, Hidden: last == "-->"}
			end, indent = last, line[:strings.Index(line, trimmed)]
			if len(words) > 0 {
				open.Language, open.Marks = words[0], words[1:]
			}
			open.Output, adjacent = adjacent && open.Language == "", false
		default:
			prose = append(prose, line)
			adjacent = adjacent && trimmed == ""
		}
	}
	if open != nil {
		return nil, nil, fmt.Errorf("%s: the block is not closed", open.At())
	}
	return blocks, prose, nil
}

// opening returns the words of a line that opens a block, and the line that ends the block. The
// end is empty if the line opens none.
func opening(line string) (words []string, end string) {
	if fence, ok := strings.CutPrefix(line, "```"); ok {
		return strings.Fields(fence), "```"
	}
	if comment, ok := strings.CutPrefix(line, "<!-- "); ok {
		if words = strings.Fields(comment); len(words) > 0 && (words[0] == "go" || words[0] == "sh") {
			return words, "-->"
		}
	}
	return nil, ""
}
