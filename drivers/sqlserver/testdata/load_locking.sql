-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @ids mssql.NVarCharMax: ["61"]
set nocount on;
set lock_timeout 10000;
set xact_abort on;
begin transaction;
declare @checkpoint bigint = (select t.version from manifold_documents.[order-summary.12] as t with (rowlock, holdlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x);
select t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from openjson(@ids) with (id_bytes varchar(1024) '$') as b
inner join manifold_documents.[order-summary.12] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)
option (loop join, force order);
commit transaction;
