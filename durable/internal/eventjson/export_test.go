package eventjson

var CutAssembly = cutAssembly

// ReadInt reads a member as the field of an event.
func ReadInt(e *Event, name string) (v *int) {
	reader{e}.OptionalInt(name, &v)
	return v
}
