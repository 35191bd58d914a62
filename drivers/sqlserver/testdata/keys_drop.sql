-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
set nocount on;
set lock_timeout 10000;
set xact_abort on;
delete top (1000) k from manifold_documents.[document_keys] as k with (rowlock) where k.tenant_id = @tenant and k.build = @build;
select @@rowcount;
