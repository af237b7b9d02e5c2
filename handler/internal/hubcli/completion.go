package hubcli

import (
	"flag"
	"fmt"
	"slices"
	"strings"
)

// A choice lists the words that can follow certain words.
type choice struct {
	after string // the preceding words, with "hub" for the program
	words []string
}

// choices returns the completions for verbs, those with the most preceding words first.
func choices(verbs []verb) []choice {
	first := choice{"hub", []string{"--help", "--version"}}
	groups := map[string][]string{}
	var all []choice
	for _, v := range verbs {
		words := strings.Fields(v.name)
		if !slices.Contains(first.words, words[0]) {
			first.words = append(first.words, words[0])
		}
		if len(words) > 1 {
			groups[words[0]] = append(groups[words[0]], words[1])
		}
		one := choice{"hub " + v.name, []string{"--help"}}
		newFlags(v).shown(func(f *flag.Flag) { one.words = append(one.words, "--"+f.Name) })
		if v.name == "completion" {
			one.words = append(one.words, "bash", "zsh", "fish")
		}
		all = append(all, one)
	}
	for group, verbs := range groups {
		all = append(all, choice{"hub " + group, verbs})
	}
	all = append(all, first)
	slices.SortFunc(all, func(a, b choice) int {
		if n := strings.Count(b.after, " ") - strings.Count(a.after, " "); n != 0 {
			return n
		}
		return strings.Compare(a.after, b.after)
	})
	return all
}

// values lists the values of flags.
var values = []choice{{"--output", []string{"table", "json"}}, {"--status", statuses}}

// A completion runs the verb completion.
type completion struct{ command }

// run prints the script for a shell. The script compares the words before the cursor with choices.
func (c completion) run() error {
	program, _, _ := strings.Cut(c.program.Name, " ")
	function := "_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, program)
	write := map[string]func(program, function string, all []choice) string{"bash": bash, "zsh": zsh, "fish": fish}[c.args[0]]
	if write == nil {
		return usageError(fmt.Sprintf("there is no script for %q; want bash, zsh or fish", c.args[0]))
	}
	script := write(program, function, choices(c.verbs))
	return c.print(map[string]string{"script": script}, strings.TrimSuffix(script, "\n"))
}

// cases returns the branches of a case statement.
func cases(all []choice, indent, pattern, does string) string {
	var text strings.Builder
	for _, one := range all {
		fmt.Fprintf(&text, "%s"+pattern+") "+does+" ;;\n", indent, one.after, strings.Join(one.words, " "))
	}
	return text.String()
}

func bash(program, function string, all []choice) string {
	return fmt.Sprintf(`# Completes the words of %[1]s hub in bash.
%[2]s() {
  local words='' line=" ${COMP_WORDS[*]:1:COMP_CWORD-1} "
  case ${COMP_WORDS[COMP_CWORD-1]} in
%[3]s    *) case $line in
%[4]s      '  ') words=hub ;;
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F %[2]s %[1]s
`, program, function, cases(values, "    ", "%s", "words='%s'"), cases(all, "      ", "' %s '*", "words='%s'"))
}

func zsh(program, function string, all []choice) string {
	return fmt.Sprintf(`#compdef %[1]s
# Completes the words of %[1]s hub in zsh.
%[2]s() {
  local line=" ${(j: :)words[2,CURRENT-1]} "
  case $words[CURRENT-1] in
%[3]s    *) case $line in
%[4]s      '  ') compadd -- hub ;;
      *) _files ;;
    esac ;;
  esac
}
compdef %[2]s %[1]s
`, program, function, cases(values, "    ", "%s", "compadd -- %s"), cases(all, "      ", "' %s '*", "compadd -- %s"))
}

func fish(program, function string, all []choice) string {
	var text strings.Builder
	fmt.Fprintf(&text, `# Completes the words of %[1]s hub in fish.
function %[2]s
  set -l line (commandline -opc)
  set -e line[1]
  switch "$line[-1]"
`, program, function)
	for _, one := range values {
		fmt.Fprintf(&text, "    case %s\n      string split ' ' '%s'\n      return\n", one.after, strings.Join(one.words, " "))
	}
	text.WriteString("  end\n  switch \" $line \"\n")
	for _, one := range all {
		fmt.Fprintf(&text, "    case ' %s *'\n      string split ' ' -- '%s'\n", one.after, strings.Join(one.words, " "))
	}
	fmt.Fprintf(&text, "    case '  '\n      echo hub\n  end\nend\ncomplete -c %s -a '(%s)'\n", program, function)
	return text.String()
}
