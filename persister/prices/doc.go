// Package prices reads files of what models cost.
//
// # What it is
//
// A [List] has the prices of models per million tokens, each from a day on. [Parse] reads a file, [Default] is the list
// that ships with the program. A store keeps a list in its table agent_model_prices, and computes costs there.
//
// # Contract
//
// A name may have * for anything. Which price of several counts is decided in the store: the longest name that fits,
// then the newest that is valid on the day of the message.
//
// # Concurrency
//
// All functions are safe for concurrent use.
//
// # What it does not do
//
// It computes no cost and asks nobody for prices.
//
// # Where to look next
//
// docs/sql.md for the table, sqlstore.Store.SetPrices for who fills it.
package prices
