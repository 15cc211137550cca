// Holds the description of the routes that a server gives to the OpenAPI specification. Prints a line.
import SwaggerParser from "@apidevtools/swagger-parser";

const doc = await SwaggerParser.validate(`${process.env.BASE}/openapi.yaml`, { resolve: { http: { safeUrlResolver: false } } });
const operations = Object.values(doc.paths).flatMap((path) => Object.values(path)).filter((o) => o.operationId);
const twice = operations.map((o) => o.operationId).filter((id, i, all) => all.indexOf(id) !== i);
if (twice.length > 0) throw new Error(`ids that stand twice: ${twice}`);
console.log(`ok ${operations.length} operations`);
