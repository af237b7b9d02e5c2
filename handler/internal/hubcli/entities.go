package hubcli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// An entityCommand runs the verbs about entities.
type entityCommand struct{ command }

// keyArg is the name of the argument with the key of an entity. The key may be empty.
const keyArg = "KEY"

// keyHelp describes keyArg.
const keyHelp = `KEY "" is the empty key. The key $ is refused, because the management API reads it as the empty key.`

// emptyKey is the empty key in the URL that reads an entity.
const emptyKey = "$"

func (c entityCommand) list() error {
	query := url.Values{"fetchState": {strconv.FormatBool(c.flags.showState)}}
	all, err := c.pages(append([]string{"entities"}, c.args...), query, func(json.RawMessage) bool { return true })
	if err != nil {
		return err
	}
	if c.flags.output == "json" {
		return c.print(append([]json.RawMessage{}, all...), "")
	}
	rows := [][]string{{"NAME", "KEY", "LAST OPERATION", "STATE"}}
	for _, raw := range all {
		var one struct {
			EntityID          struct{ Name, Key string }
			LastOperationTime string
			State             json.RawMessage
		}
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("%w: %w", errUnexpected, err)
		}
		rows = append(rows, []string{cell(one.EntityID.Name), cell(one.EntityID.Key), one.LastOperationTime, c.short(whole(one.State))})
	}
	return c.table(rows)
}

func (c entityCommand) get() error {
	a, err := c.request(http.MethodGet, []string{"entities", c.args[0], cmp.Or(c.args[1], emptyKey)}, nil, nil, nil)
	if err != nil {
		return err
	}
	return c.json(a.body)
}

func (c entityCommand) signal() error {
	input, err := c.payload()
	if err != nil {
		return err
	}
	path, key := []string{"entities", c.args[0]}, `""`
	if c.args[1] != "" {
		path, key = append(path, c.args[1]), c.args[1]
	}
	if _, err := c.request(http.MethodPost, path, url.Values{"op": {c.args[2]}}, input, nil); err != nil {
		return err
	}
	text := fmt.Sprintf("signaled %s of %s %s", c.args[2], c.args[0], key)
	return c.print(map[string]string{"entity": c.args[0], "key": c.args[1], "done": text}, text)
}
