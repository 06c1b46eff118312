package lines

// Transact is what to write in a transaction, and how to end it.
type Transact struct {
	Topic  string   `json:"topic"`
	Name   string   `json:"name"`
	Values []string `json:"values"`
	Commit bool     `json:"commit"`
}

// Copy is what to copy through transactions, each of which is aborted once.
type Copy struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Group  string `json:"group"`
	Name   string `json:"name"`
	Count  int    `json:"count"`
}

// Mark is the transformation between consuming and producing.
func Mark(value []byte) string { return string(value) + "!" }
