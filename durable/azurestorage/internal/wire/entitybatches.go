package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// What a batch of an entity sends is put into its queue hidden, before the state is
// stored that the batch comes to, and shown after it. A process that dies in between
// lets it come to light by itself: so a .NET worker that takes the entity over, which
// knows nothing of what is yet to be sent, need not send it.
//
// What comes to light by itself names its batch, which .NET ignores. A receiver of ours
// asks the entity's sentinel whether the batch counted. What was handed over in memory,
// or shown, did.

// A run is the batches with messages that one worker does of an entity one after the
// other, from when it reads the history until one of them fails. All of its batches
// counted that have no greater number than the last of them that did. So what a batch
// sent that did not count is known for what it is when it comes to light, however many
// have followed.

// EntityBatchesColumn is the column of an entity's sentinel that says which batches with
// messages counted: the runs that were last, the newest first, as MARK:NUMBER of the
// last batch that counted. Numbers go on from run to run. A merge of .NET's leaves it
// alone. Earlier versions wrote the number of the last batch, and marks of it and those
// before it.
const EntityBatchesColumn = "EntityBatches"

// runsKnown is how many runs the sentinel names.
const runsKnown = 16

// EntityBatches are the batches that counted, as a sentinel names them.
type EntityBatches []batchRun // the newest first

// batchRun is a run of an entity's batches.
type batchRun struct {
	mark string
	last int // that counted
}

// ParseEntityBatches reads the column.
func ParseEntityBatches(column string) (b EntityBatches) {
	words := strings.Fields(column)
	if len(words) > 0 && !strings.Contains(words[0], ":") {
		last, _ := strconv.Atoi(words[0])
		for i, mark := range words[1:] {
			b = append(b, batchRun{mark, last - i})
		}
		return b
	}
	for _, word := range words {
		mark, number, _ := strings.Cut(word, ":")
		last, _ := strconv.Atoi(number) // another program's
		b = append(b, batchRun{mark, last})
	}
	return b
}

// String returns the text of the column.
func (b EntityBatches) String() string {
	words := make([]string, len(b))
	for i, run := range b {
		words[i] = run.mark + ":" + strconv.Itoa(run.last)
	}
	return strings.Join(words, " ")
}

// Next returns what is to be known once the next batch of the run with the given mark
// has counted.
func (b EntityBatches) Next(mark string) EntityBatches {
	if len(b) == 0 {
		return EntityBatches{{mark, 1}}
	}
	last, before := b[0].last+1, b
	if b[0].mark == mark {
		before = b[1:]
	}
	runs := append(EntityBatches{{mark, last}}, before...)
	return runs[:min(len(runs), runsKnown)]
}

// Name returns what messages of the last batch say of it.
func (b EntityBatches) Name() string { return fmt.Sprintf("%d %s", b[0].last, b[0].mark) }

// Counted reports whether a batch with the given name counted. One of a run that is older
// than what is known did, as far as anybody can tell: receivers know requests and answers
// that they got before.
func (b EntityBatches) Counted(name string) bool {
	number, mark, _ := strings.Cut(name, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return true
	}
	for _, run := range b {
		if run.mark == mark {
			return n <= run.last
		}
	}
	return len(b) == runsKnown && n <= b[runsKnown-1].last
}
