package durablecheck

import (
	"go/types"
	"strings"
)

// An orderEffect is the effect of a function on the order of its arguments.
type orderEffect int

const (
	exposesOrder   orderEffect = iota // the result depends on the order, and no later sort restores it
	carriesOrder                      // the result has the order of the arguments; a later sort restores it
	dropsOrder                        // the result does not depend on the order of arguments or maps
	sortsInPlace                      // it sorts its argument
	yieldsMapOrder                    // the result has the order of a map
	visitsMapOrder                    // it calls its last argument in the order of a map
	recordsCalls                      // its receiver records the order of the calls
)

// An orderEntry contains the effect of some functions and methods of a package. names is a list of
// path.Match patterns as in an entry.
type orderEntry struct {
	names  string
	effect orderEffect
}

// standardOrder lists, by package path, the functions of the standard library that take or return
// sequences or maps, and functions with an effect on the order of slices. Forbidden functions are not
// listed. A test walks the standard library and fails if a function is missing.
//
// A sort counts as total: a comparison that treats different elements as equal is not found.
var standardOrder = map[string][]orderEntry{
	"slices": {
		{"AppendSeq Clip Clone Collect Concat DeleteFunc Grow Insert Repeat Reverse Values", carriesOrder},
		{"Contains ContainsFunc Max Min Sorted SortedFunc SortedStableFunc", dropsOrder},
		{"Sort SortFunc SortStableFunc", sortsInPlace},
		// These depend on positions, on neighbors or on the first of equal elements.
		{"All Backward BinarySearch BinarySearchFunc Chunk Compact CompactFunc Compare CompareFunc", exposesOrder},
		{"Delete Equal EqualFunc Index IndexFunc IsSorted IsSortedFunc MaxFunc MinFunc Replace", exposesOrder},
	},
	"maps": {
		{"All Keys Values", yieldsMapOrder},
		{"DeleteFunc EqualFunc", visitsMapOrder},
		{"Clone Collect Copy Equal Insert", dropsOrder},
	},
	"iter": {{"Pull Pull2", exposesOrder}},
	"sort": {
		{"Float64s Ints Slice SliceStable Sort Stable Strings", sortsInPlace},
		{"Float64Slice.Sort IntSlice.Sort StringSlice.Sort", sortsInPlace},
	},
	"strings": {{"FieldsFuncSeq FieldsSeq Join Lines SplitAfterSeq SplitSeq", exposesOrder}},
	"bytes":   {{"FieldsFuncSeq FieldsSeq Join Lines SplitAfterSeq SplitSeq", exposesOrder}},
	"reflect": {
		{"Value.MapKeys Value.MapRange Value.Seq Value.Seq2", yieldsMapOrder},
		{"Type.Fields Type.Ins Type.Methods Type.Outs Value.Fields Value.Methods", dropsOrder},
	},
	"net/url": {
		{"Values.Add", recordsCalls},
		{"ParseQuery URL.Query Values.Del Values.Encode Values.Get Values.Has Values.Set", dropsOrder},
	},
	"net/textproto": {
		{"MIMEHeader.Add", recordsCalls},
		{"Reader.ReadMIMEHeader", dropsOrder},
		{"MIMEHeader.Del MIMEHeader.Get MIMEHeader.Set MIMEHeader.Values", dropsOrder},
	},
	"net/http": {
		{"Header.Add", recordsCalls},
		{"Header.Clone Header.Del Header.Get Header.Set Header.Values Header.Write Header.WriteSubset", dropsOrder},
	},
	"net/http/cgi":      {{"RequestFromMap", dropsOrder}},
	"net/http/fcgi":     {{"ProcessEnv", dropsOrder}},
	"net/http/httptest": {{"ResponseRecorder.Header", dropsOrder}},
	"net/mail":          {{"Header.AddressList Header.Date Header.Get", dropsOrder}},
	"mime":              {{"FormatMediaType ParseMediaType", dropsOrder}},
	"mime/multipart":    {{"Writer.CreatePart", dropsOrder}},
	"container/list":    {{"List.PushBack List.PushFront List.InsertAfter List.InsertBefore", recordsCalls}},
	"text/template":     {{"Template.Funcs", dropsOrder}},
	"html/template":     {{"Template.Funcs", dropsOrder}},
	"text/template/parse": {
		{"Parse Tree.Parse", dropsOrder},
	},
	"go/ast": {
		{"NewPackage", yieldsMapOrder}, // of its files: the first declaration of a name counts
		{"CommentMap.Comments CommentMap.Filter CommentMap.String CommentMap.Update NewCommentMap Preorder", dropsOrder},
	},
	"go/doc":    {{"ToHTML", dropsOrder}},
	"go/parser": {{"ParseDir", dropsOrder}},
	"go/types": {
		{"Interface.EmbeddedTypes Interface.ExplicitMethods Interface.Methods MethodSet.Methods Named.Methods", dropsOrder},
		{"Scope.Children Struct.Fields Tuple.Variables TypeList.Types TypeParamList.TypeParams Union.Terms", dropsOrder},
	},
	"testing/fstest": {
		{"MapFS.Glob MapFS.Lstat MapFS.Open MapFS.ReadDir MapFS.ReadFile MapFS.ReadLink MapFS.Stat MapFS.Sub", dropsOrder},
	},
}

// effectOf returns the effect of fn on the order of its arguments. Of a function that is not listed,
// the result may depend on the order.
func effectOf(fn types.Object) (effect orderEffect, listed bool) {
	switch {
	case fn == nil:
		return exposesOrder, false
	case fn.Pkg() == nil:
		if fn.Name() == "len" || fn.Name() == "cap" {
			return dropsOrder, true
		}
		return exposesOrder, false
	}
	name := listedName(fn)
	for _, e := range standardOrder[packagePath(fn.Pkg())] {
		for pattern := range strings.FieldsSeq(e.names) {
			if matches(pattern, name) {
				return e.effect, true
			}
		}
	}
	return exposesOrder, false
}

// hasEffect reports whether fn has the given effect.
func hasEffect(fn types.Object, effect orderEffect) bool {
	e, listed := effectOf(fn)
	return listed && e == effect
}
