// Reads Parquet files, named as arguments, with a library that is not ours, and prints one line of JSON
// for each row.

import { asyncBufferFromFile, parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";

const plain = (_, v) => (typeof v === "bigint" ? Number(v) : v);

for (const path of process.argv.slice(2)) {
  const file = await asyncBufferFromFile(path);
  const rows = await parquetReadObjects({ file, compressors });
  process.stdout.write(rows.map((row) => JSON.stringify(row, plain) + "\n").join(""));
}
